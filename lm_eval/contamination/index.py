"""The index of all n-grams of the test documents, in which the words of a corpus are looked up.

A *unit* is what is searched for: an n-gram, or a whole document with fewer words than that. Equal
units of several documents or tasks are one unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm_eval.contamination.hashing import (
    BYTE_MASKS,
    Hashes,
    NgramHashes,
    Positions,
    numbers_at,
    word_hashes,
)

#: Documents with fewer words are not searched for: they occur in any large corpus.
MIN_WORDS = 5
#: Number of words that are hashed at a time.
_CHUNK = 1 << 20
#: Bits of a filter: at least this many per hash, and at most 2^28 (32 MiB) in all.
_BITS_PER_HASH, _MAX_BITS = 32, 28
_SECOND = np.uint64(0x9E6C63D0876A9A47)
#: Added to the hash of a short document, so that lengths do not mix.
_PER_WORD = 0x589965CC75374CC3


@dataclass(frozen=True)
class Query:
    """A test document to search for, normalized."""

    task: str
    doc_id: int
    question: bytes
    answer: bytes
    """The gold answer; empty if there is none, or if the question already ends in it."""

    @property
    def whole(self) -> bytes:
        """The question with the answer."""
        return b" ".join(part for part in (self.question, self.answer) if part)


@dataclass(frozen=True)
class HashFilter:
    """A set of hashes that answers quickly: "certainly not in the set" or "perhaps"."""

    bitmap: NDArray[np.uint8]

    @classmethod
    def of(cls, hashes: Hashes) -> HashFilter:
        """Returns a filter whose set consists of these hashes."""
        bits = min(_MAX_BITS, max(16, (_BITS_PER_HASH * len(hashes)).bit_length()))
        bitmap = np.zeros(1 << (bits - 3), dtype=np.uint8)
        at = np.sort(np.concatenate([hashes, hashes * _SECOND]) >> np.uint64(64 - bits))
        places = (at >> np.uint64(3)).view(np.int64)
        first = np.flatnonzero(np.diff(places, prepend=-1))
        if len(first):
            values = _BITS[(at & np.uint64(7)).view(np.int64)]
            bitmap[places[first]] = np.bitwise_or.reduceat(values, first)
        return cls(bitmap)

    def passing(self, hashes: Hashes) -> Positions:
        """Returns the positions in `hashes` of those that are perhaps in the set, ascending."""
        # The first of two bits excludes nearly all. The second one costs only for the others.
        first = np.flatnonzero(self._test(hashes))
        second: Positions = first[self._test(hashes[first] * _SECOND) != 0]
        return second

    def _test(self, hashes: Hashes) -> NDArray[np.uint8]:
        shift = np.uint64(64 - (len(self.bitmap).bit_length() + 2))
        at = hashes >> shift
        bits = _BITS.take((at & np.uint64(7)).view(np.int64))
        at >>= np.uint64(3)
        bits &= self.bitmap.take(at.view(np.int64))
        return bits


_BITS = np.array([1 << bit for bit in range(8)], dtype=np.uint8)


@dataclass(frozen=True)
class Index:
    """What the processes that scan need: the units, their hashes and their texts."""

    ngram: int
    fingerprint: str
    """A hash of the texts and the settings of the search."""
    short_lengths: tuple[int, ...]
    """The different numbers of words of short documents."""
    text: NDArray[np.uint8]
    """The normalized documents, with a blank between words and between documents."""
    ends: Positions
    """Where each word of `text` ends."""
    unit_word: Positions
    """The number in `text` of the first word of each unit."""
    unit_length: NDArray[np.int32]
    """The number of words of each unit."""
    ngram_hashes: Hashes
    """The hashes of the n-grams, sorted."""
    ngram_units: NDArray[np.int32]
    short_hashes: Hashes
    """The hashes of the short documents, sorted."""
    short_units: NDArray[np.int32]
    ngram_bitmap: NDArray[np.uint8]
    short_bitmap: NDArray[np.uint8]
    """Lets the first `MIN_WORDS` words of short documents pass."""

    @property
    def units(self) -> int:
        """The number of different units: n-grams, and documents that are shorter than one."""
        return len(self.unit_word)

    @property
    def nbytes(self) -> int:
        """The memory of the index in bytes."""
        return sum(array.nbytes for array in _arrays(self).values())

    def unit_text(self, unit: int) -> bytes:
        """Returns the normalized text of a unit, which is given by its number."""
        first = int(self.unit_word[unit])
        return self.words(first, int(self.unit_length[unit]))

    def words(self, first: int, count: int) -> bytes:
        """Returns `count` words of the indexed text from number `first` on, with blanks between.

        Words are numbered from 0 through all documents.
        """
        begin = int(self.ends[first - 1]) + 1 if first else 0
        return self.text[begin : int(self.ends[first + count - 1])].tobytes()

    def save(self, folder: Path) -> None:
        """Writes the arrays to files in `folder`, for `load`; `settings` has the other values."""
        for name, value in _arrays(self).items():
            np.save(folder / f"{name}.npy", value)

    @classmethod
    def load(cls, folder: Path, settings: tuple[int, str, tuple[int, ...]]) -> Index:
        """Returns an index whose arrays are mapped from the files in `folder`.

        Processes that load the same files share their memory. `settings` is that attribute of the
        index that was saved.
        """
        names = [field.name for field in fields(cls)][len(settings) :]
        arrays: dict[str, Any] = {name: _load(folder / f"{name}.npy") for name in names}
        return cls(*settings, **arrays)

    @property
    def settings(self) -> tuple[int, str, tuple[int, ...]]:
        """`ngram`, `fingerprint` and `short_lengths`, which `save` does not write, for `load`."""
        return self.ngram, self.fingerprint, self.short_lengths


def _load(path: Path) -> NDArray[Any]:
    """Returns an array that is mapped from a file; a small one is read, as it may be empty."""
    array: NDArray[Any] = np.load(path, "r" if path.stat().st_size > 4096 else None)
    return array


def _arrays(index: Index) -> dict[str, NDArray[Any]]:
    values = {field.name: getattr(index, field.name) for field in fields(index)}
    return {name: value for name, value in values.items() if isinstance(value, np.ndarray)}


@dataclass(frozen=True)
class Layout:
    """Which units belong to which document. Documents with the same words share their text."""

    tasks: tuple[str, ...]
    task_of: NDArray[np.int32]
    """The number in `tasks` of each document's task."""
    doc_ids: NDArray[np.int32]
    """The number of each document in its task."""
    text_of: Positions
    """The number of each document's text."""
    question_words: Positions
    """The number of words of each document's question."""
    first_word: Positions
    """The number of each text's first word in the index."""
    words: Positions
    """The number of words of each text."""
    first_unit: Positions
    """Where the units of each text begin in `units`."""
    unit_count: Positions
    """The number of units of each text: its n-grams, 1 if it is short, 0 if it is too short."""
    units: NDArray[np.int32]

    @property
    def documents(self) -> int:
        """The number of documents."""
        return len(self.doc_ids)


def build_index(queries: Sequence[Query], ngram: int) -> tuple[Index, Layout]:
    """Returns the index of the documents, and which units belong to which of them.

    The units are n-grams of `ngram` words, and whole documents of fewer words. Documents of fewer
    than `MIN_WORDS` words have none, and are not searched for.
    """
    numbers: dict[bytes, int] = {}
    text_of = [numbers.setdefault(query.whole, len(numbers)) for query in queries]
    words = np.array([_count(text) for text in numbers], dtype=np.int64)
    asked = np.array([_count(query.question) for query in queries], dtype=np.int64)
    text = b" ".join(filter(None, numbers))
    raw = np.frombuffer(text, dtype=np.uint8)
    ends = np.append(np.flatnonzero(raw == 0x20), len(text)) if text else np.zeros(0, np.int64)
    first_word = np.cumsum(words) - words
    is_short = (words >= MIN_WORDS) & (words < ngram)
    counts = np.where(words >= ngram, words - ngram + 1, is_short)
    first_unit = np.cumsum(counts) - counts
    # The n-grams of all texts, then the short ones.
    grams_of = np.where(is_short, 0, counts)
    starts = np.repeat(first_word - (np.cumsum(grams_of) - grams_of), grams_of)
    starts += np.arange(len(starts))
    shorts = np.flatnonzero(is_short)
    lengths = words[shorts]
    different = tuple(sorted(set(lengths.tolist())))
    source = _Texts(text, ends)
    gram_hashes = source.hashes(starts, ngram)
    short_hashes = np.zeros(len(shorts), dtype=np.uint64)
    for length in different:
        chosen = lengths == length
        hashes = source.hashes(first_word[shorts[chosen]], length)
        short_hashes[chosen] = short_hash(hashes, length)
    grams = _unify(source, gram_hashes, starts, np.broadcast_to(np.int64(ngram), starts.shape))
    whole = _unify(source, short_hashes, first_word[shorts], lengths)
    units = np.empty(int(counts.sum()), dtype=np.int32)
    is_gram = np.repeat(~is_short, counts)
    units[is_gram] = grams.unit_of
    units[~is_gram] = whole.unit_of + len(grams.starts)
    index = Index(
        ngram=ngram,
        fingerprint=_fingerprint(queries, ngram),
        short_lengths=different,
        text=raw,
        ends=ends,
        unit_word=np.concatenate([grams.starts, whole.starts]),
        unit_length=np.concatenate([grams.lengths, whole.lengths]).astype(np.int32),
        ngram_hashes=grams.hashes,
        ngram_units=np.arange(len(grams.starts), dtype=np.int32),
        short_hashes=whole.hashes,
        short_units=np.arange(len(whole.starts), dtype=np.int32) + len(grams.starts),
        ngram_bitmap=HashFilter.of(grams.hashes).bitmap,
        short_bitmap=HashFilter.of(source.hashes(np.sort(whole.starts), MIN_WORDS)).bitmap,
    )
    task_numbers: dict[str, int] = {}
    task_of = [task_numbers.setdefault(query.task, len(task_numbers)) for query in queries]
    layout = Layout(
        tasks=tuple(task_numbers),
        task_of=np.array(task_of, np.int32),
        doc_ids=np.array([query.doc_id for query in queries], np.int32),
        text_of=np.array(text_of, np.int64),
        question_words=asked,
        first_word=first_word,
        words=words,
        first_unit=first_unit,
        unit_count=counts,
        units=units,
    )
    return index, layout


def short_hash(hashes: Hashes, length: int) -> Hashes:
    """Returns the hashes by which short documents of `length` words are looked up.

    `hashes` are those of their words as n-grams; texts of different lengths get different ones.
    """
    return hashes + np.uint64(length * _PER_WORD % (1 << 64))


def _count(text: bytes) -> int:
    return text.count(b" ") + 1 if text else 0


def _fingerprint(queries: Sequence[Query], ngram: int) -> str:
    whole = hashlib.sha256(f"{ngram} {MIN_WORDS}\n".encode())
    for query in queries:
        whole.update(f"{query.task}\0{query.doc_id}\0".encode(errors="backslashreplace"))
        whole.update(query.question + b"\0" + query.answer + b"\n")
    return whole.hexdigest()


class _Texts:
    """All texts as one, and the ends of its words."""

    def __init__(self, text: bytes, ends: Positions) -> None:
        self.text, self.ends = text, ends
        self._numbers = numbers_at(text)

    def equal(
        self, one: Positions, other: Positions, starts: Positions, lengths: Positions
    ) -> NDArray[np.bool_]:
        """Returns for each i whether part number one[i] of the text is equal to part other[i].

        Part k has `lengths[k]` words from word `starts[k]` on.
        """
        begin, size = self._bounds(starts[one], lengths[one])
        other_begin, other_size = self._bounds(starts[other], lengths[other])
        same: NDArray[np.bool_] = size == other_size
        at, offset = np.flatnonzero(same), 0
        while len(at):
            here = self._numbers[begin[at] + offset]
            here ^= self._numbers[other_begin[at] + offset]
            left = size[at] - offset
            here &= BYTE_MASKS.take(left, mode="clip")
            same[at] = here == 0
            offset += 8
            at = at[(here == 0) & (left > 8)]
        return same

    def _bounds(self, starts: Positions, lengths: Positions) -> tuple[Positions, Positions]:
        """Returns where parts of the text begin, and their sizes, in bytes."""
        begin = np.where(starts > 0, self.ends[starts - 1] + 1, 0)
        return begin, self.ends[starts + lengths - 1] - begin

    def slice(self, first: int, count: int) -> bytes:
        begin = int(self.ends[first - 1]) + 1 if first else 0
        return self.text[begin : int(self.ends[first + count - 1])]

    def hashes(self, starts: Positions, n: int) -> Hashes:
        """Returns the hashes of the n-grams at the words `starts`, which are in ascending order."""
        found = np.zeros(len(starts), dtype=np.uint64)
        for low in range(0, len(self.ends), _CHUNK):
            here = slice(*np.searchsorted(starts, [low, low + _CHUNK]))
            if here.start == here.stop:
                continue
            high = min(low + _CHUNK + n, len(self.ends))
            begin = int(self.ends[low - 1]) + 1 if low else 0
            part = self.text[begin : int(self.ends[high - 1])]
            hashes = NgramHashes(word_hashes(part, self.ends[low:high] - begin))
            found[here] = hashes.at(starts[here] - low, n)
        return found


@dataclass(frozen=True)
class _Units:
    """Different units, in the order of their hashes."""

    hashes: Hashes
    starts: Positions
    lengths: Positions
    unit_of: NDArray[np.int32]
    """The unit of each of the texts that were given."""


def _unify(source: _Texts, hashes: Hashes, starts: Positions, lengths: Positions) -> _Units:
    """Returns the different ones among parts of `source`, sorted by hash.

    Part k has the hash `hashes[k]` and `lengths[k]` words from word `starts[k]` on. Parts with
    equal hashes are compared, so that different texts are never one unit.
    """
    order = np.argsort(hashes, kind="stable")
    ordered = hashes[order]
    is_new = np.ones(len(order), dtype=bool)
    is_new[1:] = ordered[1:] != ordered[:-1]
    group = np.cumsum(is_new) - 1
    chosen = order[is_new]
    moved: dict[tuple[int, bytes], int] = {}
    again = np.flatnonzero(~is_new)
    for at in again[~source.equal(order[again], chosen[group[again]], starts, lengths)].tolist():
        # A collision, or another text that collides with the first one. Its unit follows.
        entry = order[at]
        key = (int(ordered[at]), source.slice(int(starts[entry]), int(lengths[entry])))
        if key not in moved:
            moved[key] = len(chosen)
            chosen = np.append(chosen, entry)
        group[at] = moved[key]
    unit_of = np.empty(len(order), dtype=np.int32)
    unit_of[order] = group
    if moved:
        sorting = np.argsort(hashes[chosen], kind="stable")
        chosen = chosen[sorting]
        rank = np.empty(len(sorting), dtype=np.int32)
        rank[sorting] = np.arange(len(sorting), dtype=np.int32)
        unit_of = rank[unit_of]
    return _Units(hashes[chosen], starts[chosen], lengths[chosen], unit_of)
