"""The content of a findings file as dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_eval.errors import DataError


@dataclass(frozen=True)
class Overlap:
    """How much of one text was found."""

    ngrams: int
    """Number of n-grams of the text; 1 for a short document, which is searched for as a whole."""
    found: int
    """How many of them are in the corpus."""
    longest: int
    """Number of words of the longest run of consecutive n-grams that were found; 0 if none was."""

    @property
    def overlap(self) -> float:
        """The share of the n-grams that were found, from 0 to 1; 0 if there are none."""
        return self.found / self.ngrams if self.ngrams else 0.0

    def to_json(self) -> dict[str, Any]:
        """Returns the overlap as an object for the file; the share has four decimals."""
        return {
            "ngrams": self.ngrams,
            "found": self.found,
            "overlap": round(self.overlap, 4),
            "longest": self.longest,
        }


@dataclass(frozen=True)
class Match:
    """A run of words of a document, and a place in the corpus where they occur."""

    words: str
    """The matched words, normalized; long runs are cut and end in ` …`."""
    length: int
    """Number of matched words."""
    position: int
    """Number of the first matched word in the document, counted from 0."""
    side: str
    """`question` if all words belong to the question, `answer` if the run reaches the answer."""
    file: str
    """The name of the corpus file."""
    record: int
    """The number of the record in the file (a line of JSON, a row of a table), counted from 0."""
    offset: int
    """Where the passage begins in the record's text, in bytes of UTF-8."""
    passage: str
    """The original text of the corpus around the words."""


@dataclass(frozen=True)
class DocumentFinding:
    """What was found of one test document."""

    task: str
    doc_id: int
    """The number of the document in the evaluated split, as in sample logs."""
    doc_hash: str
    """The hash of the document, as in sample logs."""
    contaminated: bool
    """Whether the document is contaminated by the threshold of the header."""
    question: Overlap
    with_answer: Overlap
    """The question together with the gold answer. This is what the threshold is compared with."""
    short: bool
    """Whether the document has fewer words than an n-gram, so that it was matched as a whole."""
    runs: tuple[tuple[int, int], ...]
    """The n-grams that were found, as (number of the first one, how many); needed for merging."""
    matches: tuple[Match, ...] = ()
    """A few of the matches, the longest ones."""

    def is_contaminated(self, threshold: float) -> bool:
        """Returns whether the document is contaminated by this threshold.

        With 0, one n-gram in the corpus is enough. Otherwise the share of n-grams in the corpus
        must be at least `threshold`.
        """
        if threshold <= 0:
            return self.with_answer.found > 0
        return self.with_answer.overlap >= threshold


@dataclass(frozen=True)
class CorpusFile:
    """A file of the corpus that was read."""

    name: str
    bytes: int
    records: int
    fingerprint: str
    """A hash of the text in the file. It does not depend on the compression of the file."""


@dataclass(frozen=True)
class BrokenPlace:
    """Where a file of the corpus could not be read."""

    name: str
    place: str
    """Where reading failed, for example `line 17`."""
    error: str
    count: int = 1
    """How many records of the file could not be read, if the file was read on after them."""


@dataclass(frozen=True)
class Corpus:
    """The corpus that was scanned."""

    fingerprint: str
    """A hash of the names and fingerprints of the files."""
    files: tuple[CorpusFile, ...]
    broken: tuple[BrokenPlace, ...] = ()


@dataclass(frozen=True)
class SearchedTask:
    """A task whose documents were searched for."""

    version: Any
    split: str
    documents: int
    short_documents: int
    """How many documents have fewer words than an n-gram."""
    too_short_documents: int
    """How many documents have so few words that they were not searched for."""
    ngrams: int
    """Number of n-grams of all documents."""
    fingerprint: str | None
    """The fingerprint of the rows of the split, as in results files; None if it is not known."""
    query_hash: str
    """A hash of the texts that were searched for."""


@dataclass(frozen=True)
class Header:
    """What was searched for, and where."""

    ngram: int
    """Number of words of an n-gram."""
    normalization: str
    """The name of the rule by which texts become words."""
    threshold: float
    """The threshold of `DocumentFinding.contaminated`."""
    min_words: int
    """Documents with fewer words were not searched for."""
    corpus: Corpus
    tasks: dict[str, SearchedTask]
    lm_eval_version: str


@dataclass(frozen=True)
class Findings:
    """The content of a findings file."""

    header: Header
    documents: dict[str, dict[int, DocumentFinding]] = field(default_factory=dict)
    """The documents of which something was found, by task and by number."""

    def covers(self, task: str) -> bool:
        """Returns whether the documents of `task` were searched for.

        `task@format` has the documents of `task`.
        """
        return _plain_name(task, self.header.tasks) in self.header.tasks

    def searched(self, task: str) -> SearchedTask:
        """Returns how `task` was searched for; raises `DataError` if it was not."""
        self._check_covers(task)
        return self.header.tasks[_plain_name(task, self.header.tasks)]

    def of_task(self, task: str) -> dict[int, DocumentFinding]:
        """Returns the documents of `task` of which something was found, by number.

        Raises `DataError` if the task was not searched for.
        """
        self._check_covers(task)
        return self.documents.get(_plain_name(task, self.header.tasks), {})

    def contaminated(self, task: str, threshold: float | None = None) -> set[int]:
        """Returns the numbers of the contaminated documents of `task`.

        Args:
            task: the name of the task; `task@format` has the documents of `task`.
            threshold: the share of n-grams that must have been found; 0 if one is enough. None
                stands for the threshold of the scan.

        Raises `DataError` if the task was not searched for.
        """
        limit = self.header.threshold if threshold is None else threshold
        found = self.of_task(task)
        return {number for number, doc in found.items() if doc.is_contaminated(limit)}

    def _check_covers(self, task: str) -> None:
        if not self.covers(task):
            names = ", ".join(sorted(self.header.tasks)[:10])
            more = ", …" if len(self.header.tasks) > 10 else ""
            raise DataError(
                f"the findings do not cover the task {task!r}; they cover: {names}{more}. Scan the "
                "corpus for it with `lm-eval contamination scan`."
            )


def _plain_name(task: str, known: Mapping[str, Any]) -> str:
    return task if task in known else task.partition("@")[0]
