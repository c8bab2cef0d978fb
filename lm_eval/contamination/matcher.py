"""Looks up the words of a corpus in the index, block by block.

Every match is compared as text before it counts. N-grams never cross from one record to the next.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from lm_eval.contamination.hashing import Hashes, NgramHashes, Positions, word_hashes
from lm_eval.contamination.index import MIN_WORDS, HashFilter, Index, short_hash
from lm_eval.contamination.words import NOT_TEXT, split, word_bounds

#: Bytes of text that are processed at a time.
BLOCK = 1 << 20
#: The most n-grams of the corpus that one passage shows.
PASSAGE_NGRAMS = 32
#: Characters before and after the matched words, and the most characters of a passage.
PASSAGE_MARGIN, PASSAGE_LENGTH = 60, 1000

#: The most bytes of earlier blocks that are kept to show words at the beginning of a block.
_MAX_BEFORE = 4 << 20
#: A word between others that no document contains: it separates records.
_SEPARATOR = b" " + NOT_TEXT + b" "
_TOKEN = re.compile(r"\S+")
_DELETED = str.maketrans("", "", string.punctuation)


@dataclass(frozen=True)
class Piece:
    """A part of a record. A record that is larger than a block has several pieces."""

    record: int
    """The number of the record in its shard."""
    data: bytes
    """Valid UTF-8, or bytes `NOT_TEXT` where words must not match. Cut only at whitespace."""
    begins: bool = True
    """Whether the record begins here; otherwise the piece continues the one before it."""


@dataclass
class Hits:
    """The units that were found in a shard, each with the first place where it occurs."""

    units: list[int] = field(default_factory=list)
    records: list[int] = field(default_factory=list)
    words: list[int] = field(default_factory=list)
    """The number of the first matched word in the record."""
    passages: list[tuple[int, int, str]] = field(default_factory=list)
    """(number of the first hit, offset in the record in bytes, text) of each passage. A passage
    belongs to all hits from its first one to that of the next passage."""


@dataclass(frozen=True)
class _Part:
    """The text of one record in the present block, and what came before it."""

    record: int
    data: bytes
    continues: bool = False
    """Whether the record began in an earlier block."""
    offset: int = 0
    """How many bytes of the record came before `data`."""
    words: int = 0
    """How many words of the record came before `data`."""
    before: bytes = b""
    """The text of the record before `data`, at least the last words of it."""


class Matcher:
    """Searches one shard. `feed` it all pieces in order, then read `hits`."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._ngrams = HashFilter(index.ngram_bitmap)
        self._heads = HashFilter(index.short_bitmap)
        self._found: NDArray[np.bool_] = np.zeros(index.units, dtype=bool)
        self._carried = b""  # normalized words at the end of the last block
        self._last = _Part(0, b"")  # the last part of the last block, and how many words it has
        self._last_words = 0
        self.hits = Hits()

    def feed(self, pieces: Iterable[Piece]) -> Iterator[int]:
        """Searches the pieces, in blocks of `BLOCK` bytes or more; fills `hits`.

        Yields the number of bytes of each block after searching it, so it must be iterated over.
        """
        parts: list[_Part] = []
        size = 0
        for piece in pieces:
            if piece.begins:
                parts.append(_Part(piece.record, piece.data))
            elif parts:
                parts[-1] = replace(parts[-1], data=parts[-1].data + piece.data)
            else:
                parts.append(self._continued(piece))
            size += len(piece.data)
            if size >= BLOCK:
                self._search(parts)
                yield size
                parts, size = [], 0
        if parts:
            self._search(parts)
            yield size

    def _continued(self, piece: Piece) -> _Part:
        """Returns the first part of a block, whose record began in the block before.

        It knows how many bytes and words of the record came before, and the last of them.
        """
        last, words = self._last, self._last.words + self._last_words
        before = last.data
        if self._last_words < self._index.ngram and len(last.before) < _MAX_BEFORE:
            before = last.before + before  # else carried words could be missing in it
        return _Part(piece.record, piece.data, True, last.offset + len(last.data), words, before)

    def _search(self, parts: list[_Part]) -> None:
        """Adds the units (n-grams and short documents) first found in one block of text to `hits`.

        `parts` are the texts of the records in the block, in order. The last words of the block are
        kept, so that n-grams are also found which continue in the next one.
        """
        carried = self._carried if parts[0].continues else b""
        # One blank between the carried words and the block: a record is cut only at whitespace.
        text, ends = split(
            _SEPARATOR.join(
                [b" ".join([carried, parts[0].data]), *(part.data for part in parts[1:])]
            )
        )
        carried_words = carried.count(b" ") + 1 if carried else 0
        if len(ends):
            found = self._verified(text, ends)
            if found:
                self._locate(parts, found, text, ends, carried_words)
        self._carried = _last_words(text, ends, max(self._index.ngram, MIN_WORDS) - 1)
        self._last, self._last_words = parts[-1], len(ends) - carried_words
        if len(parts) > 1:
            separator = (b" %b " % text).rfind(_SEPARATOR) + 1
            self._last_words = len(ends) - 1 - int(np.searchsorted(ends, separator))

    def _verified(self, text: bytes, ends: Positions) -> list[tuple[int, int]]:
        """Returns pairs (number of the word where it begins, unit) of units found the first time.

        They are sorted by word. `text` is a normalized block, and `ends` says where each of its
        words ends. Units with an equal hash but another text are left out.
        """
        hashes = NgramHashes(word_hashes(text, ends))
        pairs = list(self._candidates(hashes))
        if not pairs:
            return []
        at = np.concatenate([pair[0] for pair in pairs])
        units = np.concatenate([pair[1] for pair in pairs])
        fresh = ~self._found[units]
        at, units = at[fresh], units[fresh]
        order = np.lexsort((units, at))
        index, verified = self._index, []
        for word, unit in zip(at[order].tolist(), units[order].tolist(), strict=True):
            if self._found[unit]:
                continue
            begin = int(ends[word - 1]) + 1 if word else 0
            if text[begin : ends[word + index.unit_length[unit] - 1]] == index.unit_text(unit):
                self._found[unit] = True
                verified.append((word, unit))
        return verified

    def _candidates(self, hashes: NgramHashes) -> Iterator[tuple[Positions, NDArray[np.int32]]]:
        """Yields pairs of arrays: numbers of words, and the unit that may begin at each.

        Only hashes are compared, so the texts of both may differ. `hashes` are those of a block.
        """
        index = self._index
        if len(index.ngram_hashes):
            all_hashes = hashes.all(index.ngram)
            at = self._ngrams.passing(all_hashes)
            yield from _lookup(all_hashes[at], at, index.ngram_hashes, index.ngram_units)
        if index.short_lengths:
            heads = self._heads.passing(hashes.all(MIN_WORDS))
            for length in index.short_lengths if len(heads) else ():
                at = heads[heads <= hashes.count - length]
                keys = short_hash(hashes.at(at, length), length)
                yield from _lookup(keys, at, index.short_hashes, index.short_units)

    def _locate(
        self,
        parts: list[_Part],
        found: list[tuple[int, int]],
        text: bytes,
        ends: Positions,
        carried_words: int,
    ) -> None:
        """Adds units to `hits`, with their places in the records and the passages around them.

        Args:
            parts: the texts of the records in the block.
            found: pairs (number of the word in the block, unit), sorted by word.
            text: the normalized block, with a separator between records.
            ends: where each word of `text` ends.
            carried_words: how many words at its beginning are from the block before.
        """
        raw = np.frombuffer(text, dtype=np.uint8)
        starts = np.concatenate([[0], ends[:-1] + 1])
        separators = np.flatnonzero((raw[starts] == NOT_TEXT[0]) & (ends - starts == 1))
        # The first word of each part, in the block.
        begins = np.concatenate([[carried_words], separators + 1])
        words = np.array([word for word, _ in found])
        numbers = np.searchsorted(separators, words)
        # The number of each word in its part; negative for words that were carried over.
        local = (words - begins[numbers]).tolist()
        lengths = self._index.unit_length[[unit for _, unit in found]].tolist()
        hits, first_hit = self.hits, len(self.hits.units)
        runs: list[tuple[int, int, int, int]] = []  # hit, part, word, number of words
        previous, shown = (-1, 0, 0), 0
        for at, (_, unit) in enumerate(found):
            number, word, length = int(numbers[at]), local[at], lengths[at]
            hits.units.append(unit)
            hits.records.append(parts[number].record)
            hits.words.append(parts[number].words + word)
            if previous == (number, word - 1, length) and shown < PASSAGE_NGRAMS:
                hit, _, begin, _ = runs[-1]
                runs[-1] = (hit, number, begin, word + length - begin)
                shown += 1
            else:
                runs.append((first_hit + at, number, word, length))
                shown = 1
            previous = (number, word, length)
        for number, group in groupby(runs, key=itemgetter(1)):
            original = _Original(parts[number])
            for hit, _, word, count in group:
                hits.passages.append((hit, *original.passage(word, count)))


def _lookup(
    hashes: Hashes, at: Positions, known: Hashes, units: NDArray[np.int32]
) -> Iterator[tuple[Positions, NDArray[np.int32]]]:
    """Yields pairs of arrays: positions of words from `at`, and the unit that may begin at each.

    `hashes` are those of the words `at`, one each. `known` are the sorted hashes of the units
    `units`. Several units may have the same hash: the first pair then has the first unit of each
    word, the next pair the second, and so on.
    """
    if not len(at) or not len(known):
        return
    places = np.searchsorted(known, hashes)
    while len(places):
        inside = places < len(known)
        places, hashes, at = places[inside], hashes[inside], at[inside]
        equal = known[places] == hashes
        places, hashes, at = places[equal], hashes[equal], at[equal]
        if len(places):
            yield at, units[places]
        places = places + 1


def _last_words(text: bytes, ends: Positions, count: int) -> bytes:
    """Returns the last `count` words of a block, or fewer if a record begins among them.

    `text` is the normalized block, and `ends` says where each of its words ends.
    """
    if not count or not len(ends):
        return b""
    begin = int(ends[-count - 1]) + 1 if len(ends) > count else 0
    words = text[begin:].split(b" ")
    if NOT_TEXT in words:
        words = words[len(words) - words[::-1].index(NOT_TEXT) :]
    return b" ".join(words)


class _Original:
    """The original text of a part, in which passages are found by their words."""

    def __init__(self, part: _Part) -> None:
        self._data = part.before + part.data
        self._starts, self._ends = word_bounds(self._data)
        self._before = int(np.searchsorted(self._starts, len(part.before)))
        self._offset = part.offset - len(part.before)

    def passage(self, word: int, count: int) -> tuple[int, str]:
        """Returns (offset in the record in bytes, text) of `count` words, with some text around.

        `word` is the number of the first one, counted from the beginning of the part; it is
        negative for words before the part.
        """
        at = max(0, word + self._before)
        last = int(self._ends[min(at + count, len(self._ends)) - 1])
        begin = max(0, int(self._starts[at]) - PASSAGE_MARGIN)
        end = min(last + PASSAGE_MARGIN, begin + 4 * PASSAGE_LENGTH)
        while begin and self._data[begin] & 0xC0 == 0x80:  # inside a character
            begin -= 1
        while end < len(self._data) and self._data[end] & 0xC0 == 0x80:
            end += 1
        text = self._data[begin:end].decode(errors="replace")
        return self._offset + begin, text[:PASSAGE_LENGTH]


def word_spans(text: str) -> list[tuple[int, int]]:
    """Returns (begin, end) of each word of a text, in characters; `end` is exclusive.

    Words are separated by whitespace; those of ASCII punctuation alone do not count.
    """
    return [
        token.span()
        for token in _TOKEN.finditer(text)
        if not token[0].isascii() or token[0].translate(_DELETED)
    ]
