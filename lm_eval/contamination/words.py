"""Normalization: texts become words, by the rule of the published harness.

Letters A–Z become lower case, ASCII punctuation is deleted, and words are what lies between
whitespace, including that of Unicode. Other letters stay as they are. A normalized text is the
UTF-8 encoding of its words with one blank between them, without a blank at its ends.
"""

from __future__ import annotations

import string

import numpy as np
from numpy.typing import NDArray

#: The name of the rule in findings files.
NORMALIZATION = "ascii-lower, ascii-punctuation removed, split at whitespace"
#: A byte that no valid UTF-8 text contains.
NOT_TEXT = b"\xff"

_ASCII_WHITESPACE = b"\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f "
_TABLE = bytes.maketrans(
    string.ascii_uppercase.encode() + _ASCII_WHITESPACE,
    string.ascii_lowercase.encode() + b" " * len(_ASCII_WHITESPACE),
)
_DELETED = string.punctuation.encode()
_IS_SPACE = np.zeros(256, dtype=bool)
_IS_SPACE[list(_ASCII_WHITESPACE)] = True
_IS_KEPT = ~_IS_SPACE
_IS_KEPT[list(_DELETED)] = False
_STR_TABLE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase, string.punctuation)
#: Whitespace of `str.split` that is not ASCII.
_WIDE = "\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
WIDE_WHITESPACE = tuple(char.encode() for char in _WIDE + "\u2028\u2029\u202f\u205f\u3000")
#: Whether three bytes, as one number, begin with such a character.
_IS_WIDE = np.zeros(1 << 24, dtype=bool)
for _code in WIDE_WHITESPACE:
    _key = int.from_bytes(_code.ljust(3, b"\0"), "big")
    _IS_WIDE[_key : _key + (256 if len(_code) == 2 else 1)] = True
_FIRST = np.zeros(256, dtype=bool)
_FIRST[[code[0] for code in WIDE_WHITESPACE]] = True


def to_utf8(text: str) -> bytes:
    """Returns the UTF-8 encoding of a text; lone surrogates become U+FFFD."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def valid_utf8(data: bytes) -> bytes:
    """Returns the data if it is valid UTF-8, else with U+FFFD in place of what is not."""
    if data.isascii():
        return data
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode(errors="replace").encode()
    return data


def normalize(text: str) -> bytes:
    """Returns a normalized text. `split` does the same for large texts at a time."""
    words = to_utf8(text).decode().translate(_STR_TABLE).split()
    return " ".join(words).encode()


def split(data: bytes) -> tuple[bytes, NDArray[np.int64]]:
    """Returns a normalized text, and where each word of it ends.

    A word begins one byte after the end of the one before it, the first one at 0. The result for a
    text of k words has k ends; the last one is the length of the text.

    Args:
        data: valid UTF-8, except for bytes `NOT_TEXT`, which are kept as part of words.
    """
    if not data.isascii():
        data = _blank_wide_whitespace(data)
    # With a blank at both ends, blanks alone delimit all words.
    data = b" %b " % data.translate(_TABLE, _DELETED)
    raw = np.frombuffer(data, dtype=np.uint8)
    blanks = np.flatnonzero(raw == 0x20)
    surplus = np.diff(blanks) == 1
    count = int(np.count_nonzero(surplus))
    if count:
        keep = np.ones(len(raw), dtype=bool)
        keep[blanks[1:][surplus]] = False
        raw = raw[keep]
        blanks = np.flatnonzero(raw == 0x20)
    return raw[1:-1].tobytes(), blanks[1:] - 1


def word_bounds(data: bytes) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Returns where each word of an original text begins and ends, in bytes.

    There are as many as `split` finds. The bounds include punctuation at the ends of words.
    """
    raw = np.frombuffer(_blank_wide_whitespace(data), dtype=np.uint8)
    inside = np.zeros(len(raw) + 2, dtype=np.int8)
    inside[1:-1] = ~_IS_SPACE.take(raw)
    edges = np.flatnonzero(np.diff(inside))
    starts, ends = edges[::2], edges[1::2]
    kept = np.zeros(len(raw) + 1, dtype=np.int64)
    np.cumsum(_IS_KEPT.take(raw), out=kept[1:])
    words = kept[ends] > kept[starts]  # other tokens are punctuation alone
    return starts[words], ends[words]


def _blank_wide_whitespace(data: bytes) -> bytes:
    """Returns the data with blanks in place of whitespace that is not ASCII."""
    raw = np.frombuffer(data, dtype=np.uint8)
    at = np.flatnonzero(_FIRST.take(raw[:-1]))
    key = raw[at].astype(np.uint32) << np.uint32(8)
    key = (key | raw[at + 1]) << np.uint32(8) | raw.take(at + 2, mode="clip")
    at = at[_IS_WIDE.take(key)]
    if not len(at):
        return data
    changed = raw.copy()
    changed[at] = changed[at + 1] = 0x20
    changed[at[raw[at] >= 0xE0] + 2] = 0x20
    return changed.tobytes()
