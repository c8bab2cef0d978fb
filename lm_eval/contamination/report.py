"""Turns the hits of all shards into findings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lm_eval.contamination.finding_types import DocumentFinding, Match, Overlap
from lm_eval.contamination.index import Index, Layout
from lm_eval.contamination.matcher import PASSAGE_MARGIN, word_spans
from lm_eval.contamination.merge import best_matches, overlap_of
from lm_eval.contamination.places import Places
from lm_eval.contamination.runs import Runs, clip
from lm_eval.contamination.words import normalize

#: The most words of a match that are written; its length is exact.
MATCH_WORDS = 40
#: How many words find the beginning of a match in its passage.
_FEW = 5


@dataclass(frozen=True)
class Origin:
    """Where a shard is in the corpus."""

    file: str
    first_record: int = 0
    """The number in the file of the first record of the shard."""
    first_byte: int = 0
    """How many bytes of its first record are in earlier shards."""


@dataclass(frozen=True)
class Report:
    """The findings of documents, from the places of units."""

    index: Index
    layout: Layout
    places: Places
    origin_of: Callable[[int], Origin]
    """Returns where a shard is in the corpus, from its number."""

    def documents(
        self, threshold: float, hash_of: Callable[[str, int], str]
    ) -> Iterator[DocumentFinding]:
        """Yields the findings of all documents of which something was found, in order.

        From the share `threshold` of their n-grams on, they are contaminated; with 0, one is
        enough. `hash_of` returns the hash of a document, from its task and number.
        """
        layout = self.layout
        found = self.places.found(layout.units)
        texts = np.repeat(np.arange(len(layout.words)), layout.unit_count)
        with_hits = np.zeros(len(layout.words), dtype=bool)
        with_hits[texts[found]] = True
        for number in np.flatnonzero(with_hits[layout.text_of]).tolist():
            task, doc_id = layout.tasks[layout.task_of[number]], int(layout.doc_ids[number])
            text = int(layout.text_of[number])
            first, count = int(layout.first_unit[text]), int(layout.unit_count[text])
            runs = _runs(found[first : first + count])
            words, asked = int(layout.words[text]), int(layout.question_words[number])
            question, with_answer = self._overlaps(words, asked, runs)
            document = DocumentFinding(
                task=task,
                doc_id=doc_id,
                doc_hash=hash_of(task, doc_id),
                contaminated=False,
                question=question,
                with_answer=with_answer,
                short=words < self.index.ngram,
                runs=runs,
                matches=best_matches(self._matches(text, asked, runs)),
            )
            yield replace(document, contaminated=document.is_contaminated(threshold))

    def _overlaps(self, words: int, asked: int, runs: Runs) -> tuple[Overlap, Overlap]:
        """Returns the overlaps of the question, and of the question with the answer.

        `words` is the number of words of the document, and `asked` that of its question. `runs` are
        its n-grams that were found, as (first, count).
        """
        ngram = self.index.ngram
        if words < ngram:
            whole = Overlap(1, 1, words)
            return (whole if asked == words else Overlap(0, 0, 0)), whole
        questions = max(0, asked - ngram + 1)
        return (
            overlap_of(clip(runs, questions), questions, ngram),
            overlap_of(runs, words - ngram + 1, ngram),
        )

    def _matches(self, text: int, asked: int, runs: Runs) -> Iterator[Match]:
        """Yields the parts of the runs that follow each other in the corpus, too."""
        layout, length = self.layout, min(self.index.ngram, int(self.layout.words[text]))
        units = layout.units[int(layout.first_unit[text]) :]
        for first, count in runs:
            begin, last = first, self.places.place(units[first])
            for at in range(first + 1, first + count):
                place = self.places.place(units[at])
                if place != (last[0], last[1], last[2] + 1):
                    yield self._match(text, asked, begin, at - begin + length - 1, units[begin])
                    begin = at
                last = place
            yield self._match(text, asked, begin, first + count - begin + length - 1, units[begin])

    def _match(self, text: int, asked: int, position: int, length: int, unit: int) -> Match:
        """Returns the match of `length` words of a text, from word `position` on."""
        layout = self.layout
        shard, record, _ = self.places.place(unit)
        origin = self.origin_of(shard)
        offset, passage = self.places.passage(unit)
        words = self.index.words(int(layout.first_word[text]) + position, min(length, MATCH_WORDS))
        skipped, passage = _trimmed(passage, words.decode().split(" "))
        return Match(
            words=words.decode() + (" …" if length > MATCH_WORDS else ""),
            length=length,
            position=position,
            side="question" if position + length <= asked else "answer",
            file=origin.file,
            record=origin.first_record + record,
            offset=offset + skipped + (0 if record else origin.first_byte),
            passage=passage,
        )


def _runs(found: NDArray[np.bool_]) -> Runs:
    """Returns the runs of true values in an array, as (position of the first, count)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found.view(np.int8), [0]])))
    return tuple(
        (int(first), int(last - first)) for first, last in zip(edges[::2], edges[1::2], strict=True)
    )


def _trimmed(passage: str, words: Sequence[str]) -> tuple[int, str]:
    """Returns the number of bytes cut off the beginning of a passage, and the rest of it.

    A passage shows several matches; the rest begins up to `PASSAGE_MARGIN` characters before the
    one with these normalized `words`, of which the first few are searched for. Returns 0 and the
    whole passage if they are not in it.
    """
    spans = word_spans(passage)
    normalized = [normalize(passage[begin:end]).decode() for begin, end in spans]
    few = list(words[:_FEW])
    for at in range(len(normalized) - len(few) + 1):
        if normalized[at : at + len(few)] == few:
            begin = max(0, spans[at][0] - PASSAGE_MARGIN)
            return len(passage[:begin].encode()), passage[begin:]
    return 0, passage
