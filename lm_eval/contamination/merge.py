"""Combines the findings of several scans, for example of many machines."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from lm_eval.contamination.finding_types import (
    Corpus,
    CorpusFile,
    DocumentFinding,
    Findings,
    Match,
    Overlap,
    SearchedTask,
)
from lm_eval.contamination.runs import Runs, clip, longest_words, total, union
from lm_eval.errors import DataError

#: How many matches of a document are kept.
MAX_MATCHES = 5


def merge(parts: Sequence[Findings]) -> Findings:
    """Returns the findings of all parts together.

    Either the parts have the same tasks, and the result covers their corpora together; or they have
    the same corpus, and the result covers their tasks together. Raises `DataError` otherwise, and
    if the tasks or the settings of the scans differ.
    """
    if not parts:
        raise DataError("there are no findings to merge.")
    first = parts[0].header
    for name in ("ngram", "normalization", "threshold", "min_words"):
        values = {getattr(part.header, name) for part in parts}
        if len(values) > 1:
            raise DataError(
                f"the findings cannot be merged: their {name} differs "
                f"({', '.join(sorted(map(str, values)))}). Scan with the same settings."
            )
    tasks = _tasks(parts)
    if any(part.header.tasks.keys() != tasks.keys() for part in parts) and any(
        part.header.corpus.fingerprint != first.corpus.fingerprint for part in parts
    ):
        missing = next(
            name for part in parts for name in sorted(tasks) if name not in part.header.tasks
        )
        raise DataError(
            "the findings cannot be merged: neither their tasks nor their corpora are the same, so "
            f"the result would not say where each task was searched for (task {missing!r} is not "
            "in all of them). Scan each part of the corpus for the same tasks."
        )
    documents: dict[str, dict[int, DocumentFinding]] = {}
    for task in tasks:
        found: dict[int, list[DocumentFinding]] = {}
        for part in parts:
            for number, document in part.documents.get(task, {}).items():
                found.setdefault(number, []).append(document)
        documents[task] = {
            number: _merge_documents(found[number], first.ngram, first.threshold)
            for number in sorted(found)
        }
    return Findings(replace(first, corpus=_corpus(parts), tasks=tasks), documents)


def corpus_fingerprint(files: Iterable[CorpusFile]) -> str:
    """Returns a hash of the names and fingerprints of the files, in the order of their names."""
    whole = hashlib.sha256()
    for name, fingerprint in sorted((file.name, file.fingerprint) for file in files):
        whole.update(f"{name}\0{fingerprint}\n".encode(errors="backslashreplace"))
    return whole.hexdigest()


def best_matches(matches: Iterable[Match]) -> tuple[Match, ...]:
    """Returns the matches to keep: the longest ones, in the order of the document.

    A match whose words are part of another one is left out.
    """
    kept: list[Match] = []
    for match in sorted(matches, key=_preference):
        end = match.position + match.length
        inside = any(
            other.position <= match.position and end <= other.position + other.length
            for other in kept
        )
        if not inside:
            kept.append(match)
        if len(kept) == MAX_MATCHES:
            break
    return tuple(sorted(kept, key=lambda match: (match.position, -match.length)))


def _preference(match: Match) -> tuple[int, int, str, int, int]:
    return (-match.length, match.position, match.file, match.record, match.offset)


def _tasks(parts: Sequence[Findings]) -> dict[str, SearchedTask]:
    """Returns the searched tasks of all parts by name, sorted.

    Raises `DataError` if two parts searched for different documents of a task.
    """
    tasks: dict[str, SearchedTask] = {}
    for part in parts:
        for name, searched in part.header.tasks.items():
            before = tasks.setdefault(name, searched)
            if before != searched:
                what = next(
                    (
                        words
                        for field, words in (
                            ("fingerprint", "the rows of its dataset"),
                            ("version", "its version"),
                            ("split", "its split"),
                            ("query_hash", "the texts that were searched for"),
                        )
                        if getattr(before, field) != getattr(searched, field)
                    ),
                    "its documents",
                )
                raise DataError(
                    f"the findings cannot be merged: the task {name!r} is not the same in all of "
                    f"them: {what} differ. Scan with the same version of the task and its dataset."
                )
    return dict(sorted(tasks.items()))


def _corpus(parts: Sequence[Findings]) -> Corpus:
    files = {file for part in parts for file in part.header.corpus.files}
    broken = {place for part in parts for place in part.header.corpus.broken}
    ordered = tuple(sorted(files, key=lambda file: (file.name, file.fingerprint)))
    places = tuple(sorted(broken, key=lambda place: (place.name, place.place, place.error)))
    return Corpus(corpus_fingerprint(ordered), ordered, places)


def _merge_documents(
    found: Sequence[DocumentFinding], ngram: int, threshold: float
) -> DocumentFinding:
    """Returns one finding for a document, from the findings of several scans about it.

    `ngram` is the number of words of an n-gram; `threshold` decides whether it is contaminated.
    """
    first = found[0]
    whole = union(run for document in found for run in document.runs)
    if first.short:  # one unit, which each of them found
        question, with_answer = first.question, first.with_answer
    else:
        question = overlap_of(clip(whole, first.question.ngrams), first.question.ngrams, ngram)
        with_answer = overlap_of(whole, first.with_answer.ngrams, ngram)
    merged = replace(
        first,
        question=question,
        with_answer=with_answer,
        runs=whole,
        matches=best_matches(match for document in found for match in document.matches),
    )
    return replace(merged, contaminated=merged.is_contaminated(threshold))


def overlap_of(found: Runs, ngrams: int, ngram: int) -> Overlap:
    """Returns the overlap of a text that has `ngrams` n-grams of `ngram` words each.

    `found` are the n-grams that were found, as runs (first, count).
    """
    return Overlap(ngrams, total(found), longest_words(found, ngram))
