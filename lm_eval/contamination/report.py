"""Turns the hits of all shards into findings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lm_eval.contamination.finding_types import DocumentFinding, Match, Overlap
from lm_eval.contamination.index import Index, Layout
from lm_eval.contamination.matcher import PASSAGE_MARGIN, Hits, word_spans
from lm_eval.contamination.merge import best_matches, overlap_of
from lm_eval.contamination.runs import Runs, clip
from lm_eval.contamination.words import normalize

#: The most words of a match that are written; its length is exact.
MATCH_WORDS = 40
#: How many words find the beginning of a match in its passage.
_FEW = 5


@dataclass(frozen=True)
class FoundIn:
    """The hits of one shard, and where the shard is in its file."""

    file: str
    hits: Hits
    first_record: int = 0
    """The number in the file of the first record of the shard."""
    first_byte: int = 0
    """How many bytes of its first record are in earlier shards."""


class Report:
    """The places of all units that were found.

    Shards are given in the order of the corpus. The first place of a unit counts, so the result
    does not depend on the order in which shards were scanned.
    """

    def __init__(self, index: Index, layout: Layout, shards: Iterable[FoundIn]) -> None:
        self._index, self._layout = index, layout
        self._shards: list[FoundIn] = []
        self._shard_of: NDArray[np.int32] = np.full(index.units, -1, dtype=np.int32)
        self._hit_of = np.zeros(index.units, dtype=np.int64)
        for shard in shards:
            units = np.array(shard.hits.units, dtype=np.int64)
            fresh = np.flatnonzero(self._shard_of[units] < 0)
            if len(fresh):
                self._shard_of[units[fresh]] = len(self._shards)
                self._hit_of[units[fresh]] = fresh
                self._shards.append(shard)

    def documents(
        self, threshold: float, hash_of: Callable[[str, int], str]
    ) -> Iterator[DocumentFinding]:
        """Yields the findings of all documents of which something was found, in order.

        From the share `threshold` of their n-grams on, they are contaminated; with 0, one is
        enough. `hash_of` returns the hash of a document, from its task and number.
        """
        layout = self._layout
        found = self._shard_of[layout.units] >= 0
        texts = np.repeat(np.arange(len(layout.words)), layout.unit_count)
        with_hits = np.zeros(len(layout.words), dtype=bool)
        with_hits[texts[found]] = True
        for number in np.flatnonzero(with_hits[layout.text_of]).tolist():
            query, text = layout.queries[number], int(layout.text_of[number])
            first, count = int(layout.first_unit[text]), int(layout.unit_count[text])
            runs = _runs(found[first : first + count])
            words, asked = int(layout.words[text]), int(layout.question_words[number])
            question, with_answer = self._overlaps(words, asked, runs)
            document = DocumentFinding(
                task=query.task,
                doc_id=query.doc_id,
                doc_hash=hash_of(query.task, query.doc_id),
                contaminated=False,
                question=question,
                with_answer=with_answer,
                short=words < self._index.ngram,
                runs=runs,
                matches=best_matches(self._matches(text, asked, runs)),
            )
            yield replace(document, contaminated=document.is_contaminated(threshold))

    def _overlaps(self, words: int, asked: int, runs: Runs) -> tuple[Overlap, Overlap]:
        """Returns the overlaps of the question, and of the question with the answer.

        `words` is the number of words of the document, and `asked` that of its question. `runs` are
        its n-grams that were found, as (first, count).
        """
        ngram = self._index.ngram
        if words < ngram:
            whole = Overlap(1, 1, words)
            return (whole if asked == words else Overlap(0, 0, 0)), whole
        questions = max(0, asked - ngram + 1)
        return (
            overlap_of(clip(runs, questions), questions, ngram),
            overlap_of(runs, words - ngram + 1, ngram),
        )

    def _matches(self, text: int, asked: int, runs: Runs) -> Iterator[Match]:
        """Yields the matches of a text: parts of its runs that are contiguous in the corpus, too.

        `text` is the number of the text in the layout, `asked` the number of words of the question,
        and `runs` are the n-grams that were found, as (first, count).
        """
        layout, length = self._layout, min(self._index.ngram, int(self._layout.words[text]))
        units = layout.units[int(layout.first_unit[text]) :]
        for first, count in runs:
            begin, last = first, self._place(units[first])
            for at in range(first + 1, first + count):
                place = self._place(units[at])
                if place != (last[0], last[1], last[2] + 1):
                    yield self._match(text, asked, begin, at - begin + length - 1, units[begin])
                    begin = at
                last = place
            yield self._match(text, asked, begin, first + count - begin + length - 1, units[begin])

    def _place(self, unit: int) -> tuple[int, int, int]:
        """Returns (shard, record, word) of the first place where a unit was found, as numbers.

        The shard is an index into `_shards`, the record is counted in the shard, and the word in
        the record.
        """
        shard, hit = int(self._shard_of[unit]), int(self._hit_of[unit])
        hits = self._shards[shard].hits
        return shard, hits.records[hit], hits.words[hit]

    def _match(self, text: int, asked: int, position: int, length: int, unit: int) -> Match:
        """Returns the match of `length` words of a text, from word `position` on.

        `text` is the number of the text in the layout, `asked` the number of words of the question,
        and `unit` the unit with which the match begins.
        """
        layout = self._layout
        shard, hit = self._shards[int(self._shard_of[unit])], int(self._hit_of[unit])
        _, offset, passage = _passage(shard.hits.passages, hit)
        words = self._index.words(int(layout.first_word[text]) + position, min(length, MATCH_WORDS))
        record = shard.hits.records[hit]
        skipped, passage = _trimmed(passage, words.decode().split(" "))
        return Match(
            words=words.decode() + (" …" if length > MATCH_WORDS else ""),
            length=length,
            position=position,
            side="question" if position + length <= asked else "answer",
            file=shard.file,
            record=shard.first_record + record,
            offset=offset + skipped + (0 if record else shard.first_byte),
            passage=passage,
        )


def _runs(found: NDArray[np.bool_]) -> Runs:
    """Returns the runs of true values in an array, as (position of the first, count)."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], found.view(np.int8), [0]])))
    return tuple(
        (int(first), int(last - first)) for first, last in zip(edges[::2], edges[1::2], strict=True)
    )


def _passage(passages: Sequence[tuple[int, int, str]], hit: int) -> tuple[int, int, str]:
    """Returns the passage that shows a hit: the last one that does not begin after it.

    A passage is (number of the first hit that it shows, offset in the record, text); `passages` are
    sorted by the first, and `hit` is the number of a hit.
    """
    low, high = 0, len(passages)
    while high - low > 1:
        middle = (low + high) // 2
        if passages[middle][0] <= hit:
            low = middle
        else:
            high = middle
    return passages[low]


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
