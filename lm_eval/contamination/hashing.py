"""64-bit hashes of words and of n-grams, for whole blocks of text at once.

Hashes only find candidates. Whoever uses them compares the text of a candidate afterwards, so a
collision costs time but never gives a wrong result. All arithmetic is modulo 2^64.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

Hashes = NDArray[np.uint64]
Positions = NDArray[np.int64]

# Odd constants with random bits. The files of an index contain hashes, but no index outlives its
# scan, so the constants may change.
_FIRST = np.uint64(0x9E3779B97F4A7C15)
_MIDDLE = np.uint64(0xC2B2AE3D27D4EB4F)
_LAST = np.uint64(0xD6E8FEB86659FD93)
_LENGTH = np.uint64(0xA0761D6478BD642F)
_MIX = np.uint64(0xE7037ED1A0B428DB)
#: The base of the polynomial over words. It is odd, so that it has an inverse modulo 2^64.
_BASE = 0xFF51AFD7ED558CCD
#: Masks that keep the first 0 to 8 bytes of a little-endian number.
BYTE_MASKS = np.array([(1 << (8 * count)) - 1 for count in range(9)], dtype=np.uint64)


def word_hashes(text: bytes, ends: Positions) -> Hashes:
    """Returns a hash of each word of a normalized text.

    Args:
        text: the text, with one blank between words.
        ends: where each word ends, as `words.split` returns it.

    A hash depends on the first 16 and the last 8 bytes of the word and on its length, so that it
    costs three reads whatever the length.
    """
    numbers = numbers_at(text)
    starts = np.empty_like(ends)
    starts[:1] = 0
    starts[1:] = ends[:-1] + 1
    lengths = ends - starts
    hashes = numbers[starts]
    hashes &= BYTE_MASKS.take(lengths, mode="clip")
    hashes *= _FIRST
    long = np.flatnonzero(lengths > 8)
    if len(long):
        hashes[long] += numbers[ends[long] - 8] * _LAST
        longer = long[lengths[long] > 16]
        if len(longer):
            hashes[longer] += numbers[starts[longer] + 8] * _MIDDLE
    hashes += lengths.view(np.uint64) * _LENGTH
    hashes ^= hashes >> np.uint64(32)
    hashes *= _MIX
    return hashes


def numbers_at(text: bytes) -> Hashes:
    """Returns the number of 8 bytes that begins at each byte of a text, without copying it 8 times.

    The text is continued by zeros.
    """
    return np.ndarray((len(text) + 1,), dtype="<u8", buffer=text + bytes(8), strides=(1,))


class NgramHashes:
    """The hashes of all n-grams of a sequence of words, for any n.

    The hash of the n-gram at word i is the sum of w[i+k] * base^k over its n words. It is computed
    from prefix sums, in two operations per n-gram whatever n is.
    """

    def __init__(self, words: Hashes) -> None:
        self.count = len(words)
        powers, self._inverses = _powers(1 << max(0, self.count - 1).bit_length())
        self._sums = np.zeros(self.count + 1, dtype=np.uint64)
        np.cumsum(words * powers[: self.count], out=self._sums[1:])

    def all(self, n: int) -> Hashes:
        """Returns the hash of the n-gram at each word; an empty array if there are fewer words."""
        count = max(0, self.count - n + 1)
        hashes = self._sums[n : n + count] - self._sums[:count]
        hashes *= self._inverses[:count]
        return hashes

    def at(self, positions: Positions, n: int) -> Hashes:
        """Returns the hashes of the n-grams at some words; there must be n words from each on."""
        hashes = self._sums[positions + n] - self._sums[positions]
        hashes *= self._inverses[positions]
        return hashes


@cache
def _powers(count: int) -> tuple[Hashes, Hashes]:
    """Returns the first `count` powers of the base, and their inverses modulo 2^64."""
    return _powers_of(_BASE, count), _powers_of(pow(_BASE, -1, 1 << 64), count)


def _powers_of(base: int, count: int) -> Hashes:
    powers = np.full(count, np.uint64(base), dtype=np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)
