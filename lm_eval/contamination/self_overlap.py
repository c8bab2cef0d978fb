"""Finds overlaps between benchmarks, and between the splits of one, without a corpus."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import xxhash

from lm_eval._version import __version__
from lm_eval.api.task import Task
from lm_eval.contamination.finding_types import (
    Corpus,
    CorpusFile,
    DocumentFinding,
    Findings,
    Header,
)
from lm_eval.contamination.index import MIN_WORDS
from lm_eval.contamination.matcher import Matcher, Piece
from lm_eval.contamination.merge import corpus_fingerprint, merge
from lm_eval.contamination.places import Places
from lm_eval.contamination.queries import evaluated_split, texts_of
from lm_eval.contamination.report import Origin
from lm_eval.contamination.search import Search
from lm_eval.contamination.words import NORMALIZATION, to_utf8
from lm_eval.errors import DataError
from lm_eval.tasks.configurable import ConfigurableTask

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SplitOverlap:
    """How many documents of a task occur in a split of a task."""

    task: str
    documents: int
    against: str
    """The task that the split belongs to."""
    split: str
    found: tuple[DocumentFinding, ...]


def self_overlap(
    tasks: Mapping[str, Task], against: Mapping[str, Task] | None, ngram: int, threshold: float
) -> tuple[list[SplitOverlap], Findings]:
    """Returns the overlaps of the evaluated documents of `tasks` with other documents.

    Args:
        tasks: the tasks whose evaluated documents are searched for.
        against: the tasks in whose splits they are searched for; None for the other splits of each
            task itself.
        ngram: the number of words of an n-gram.
        threshold: the threshold of contaminated documents.

    Returns:
        One entry per task and split, and findings whose corpus files are `TASK/SPLIT`.

    The evaluated split of a task is never compared with itself.
    """
    search = Search.of(lambda: tasks, ngram)
    overlaps: list[SplitOverlap] = []
    parts: list[Findings] = []
    for name, task in sorted((tasks if against is None else against).items()):
        for split, docs in splits_of(task):
            compared = [
                other
                for other in sorted(tasks)
                if (other == name or against is not None)
                and not (other == name and split == evaluated_split(task))
            ]
            if not compared:
                continue
            file, places = _scan(search, f"{name}/{split}", task, docs)
            found = search.documents(places, partial(_origin, file), threshold)
            found = {each: found[each] for each in compared}
            overlaps += [
                SplitOverlap(
                    each,
                    search.searched[each].documents,
                    name,
                    split,
                    tuple(doc for _, doc in sorted(found[each].items())),
                )
                for each in compared
            ]
            header = Header(
                ngram=ngram,
                normalization=NORMALIZATION,
                threshold=threshold,
                min_words=MIN_WORDS,
                corpus=Corpus(corpus_fingerprint([file]), (file,)),
                tasks=search.searched,
                lm_eval_version=__version__,
            )
            parts.append(Findings(header, found))
    if not parts:
        raise DataError(
            f"there is nothing to compare {', '.join(sorted(tasks))} with: no other split could be "
            "read. Name other tasks with --against."
        )
    return sorted(overlaps, key=lambda o: (o.task, o.against, o.split)), merge(parts)


def splits_of(task: Task) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yields the name and the documents of each split of a task that can be read.

    These are the test, validation, training and few-shot splits. A split that cannot be read is
    left out with a warning.
    """
    seen: set[str] = set()
    for name, read in _readers(task):
        if name in seen:
            continue
        seen.add(name)
        try:
            docs = read()
        except DataError as error:
            logger.warning("%s: its split %r is left out: %s", task.task_name, name, error)
            continue
        if docs:
            yield name, docs


def _readers(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    own = isinstance(task, ConfigurableTask)
    config = task.config
    for kind, exists, read in (
        ("test", task.has_test_docs, task.test_docs),
        ("validation", task.has_validation_docs, task.validation_docs),
        ("training", task.has_training_docs, task.training_docs),
    ):
        if exists():
            name = str(getattr(config, f"{kind}_split")) if own else kind
            yield ("documents" if not own and kind == _evaluated_kind(task) else name), read
    if isinstance(task, ConfigurableTask):
        shots = task.fewshot_cfg
        if shots.split is not None:
            yield shots.split, task.fewshot_docs
        elif shots.samples is not None:
            yield "few-shot samples", task.fewshot_docs


def _evaluated_kind(task: Task) -> str:
    return "test" if task.has_test_docs() else "validation"


def _scan(search: Search, name: str, task: Task, docs: Sequence[Any]) -> tuple[CorpusFile, Places]:
    """Returns a split as a file of a corpus, and the places of what was found in it."""
    texts = [to_utf8(" ".join(texts_of(task, doc))) for doc in docs]
    matcher = Matcher(search.index)
    for _ in matcher.feed(Piece(number, text) for number, text in enumerate(texts)):
        pass
    digest = xxhash.xxh3_128(b"\xff".join(texts)).hexdigest()
    file = CorpusFile(name, sum(map(len, texts)), len(texts), digest)
    places = Places(search.index.units)
    places.add(0, matcher.hits)
    return file, places


def _origin(file: CorpusFile, shard: int) -> Origin:
    return Origin(file.name)
