"""Divides streams of bytes into lines, and into pieces that end at whitespace."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import BinaryIO

from lm_eval.contamination.matcher import Piece, word_spans
from lm_eval.contamination.words import NOT_TEXT, WIDE_WHITESPACE, valid_utf8

#: Bytes that are read at a time from plain files, and from compressed ones. What is read together
#: with a damaged place is lost, so that the second number is small.
READ, READ_COMPRESSED = 1 << 20, 1 << 16
#: A run of this many bytes without whitespace is cut. What is cut cannot match.
LONGEST_RUN = 8 << 20
_SPACES = tuple(bytes([code]) for code in b" \n\t\r\x0b\x0c\x1c\x1d\x1e\x1f")
_SPACE = re.compile(rb"[\t-\r\x1c-\x20]")


def lines(chunks: Iterable[bytes], limit: int | None) -> Iterator[bytes]:
    """Yields the lines of a stream that begin before the byte `limit`, without line breaks.

    None for no limit. `chunks` are the bytes of the stream, cut anywhere.
    """
    rest: list[bytes] = []
    begin = 0
    for chunk in chunks:
        *complete, last = chunk.split(b"\n")
        for line in complete:
            if limit is not None and begin >= limit:
                return
            if rest:
                line = b"".join([*rest, line])
                rest = []
            yield line
            begin += len(line) + 1
        if last:
            rest.append(last)
    if rest and (limit is None or begin < limit):
        yield b"".join(rest)


def cut_at_whitespace(record: int, chunks: Iterable[bytes]) -> Iterator[Piece]:
    """Yields the pieces of one record, cut at whitespace; its bytes come in chunks cut anywhere.

    `record` is the number of the record. A run of `LONGEST_RUN` bytes without whitespace
    is cut, with a mark on both sides of the cut.
    """
    rest, begins, mark = b"", True, b""
    for chunk in chunks:
        rest += chunk
        end = _after_last_space(rest, len(rest) - len(chunk))
        if not end and len(rest) >= LONGEST_RUN:
            end = max(rest.rfind(code) + len(code) for code in WIDE_WHITESPACE)
            if end < 3:  # there is none
                yield Piece(record, mark + valid_utf8(rest) + NOT_TEXT, begins)
                rest, begins, mark = b"", False, NOT_TEXT
                continue
        if end:
            yield Piece(record, mark + valid_utf8(rest[:end]), begins)
            rest, begins, mark = rest[end:], False, b""
    if rest or begins:
        yield Piece(record, mark + valid_utf8(rest), begins)


def _after_last_space(data: bytes, begin: int) -> int:
    """Returns the position after the last blank or line break from `begin` on.

    If there is none, that after the last other ASCII whitespace; 0 if there is none either.
    """
    end = max(data.rfind(space, begin) for space in _SPACES[:2])
    if end < 0:
        end = max(data.rfind(space, begin) for space in _SPACES)
    return end + 1


def next_space(file: BinaryIO, begin: int, size: int) -> int:
    """Returns the position of the first ASCII whitespace from `begin` on; `size` for none.

    0 if `begin` is 0, so that a range begins with the file.
    """
    if begin in (0, size):
        return begin
    file.seek(begin)
    while data := file.read(READ_COMPRESSED):
        if found := _SPACE.search(data):
            return begin + found.start()
        begin += len(data)
    return size


def next_words(file: BinaryIO, count: int) -> bytes:
    """Returns the next `count` words of a file, or fewer if it ends or they are very long."""
    data = b""
    while len(data) < LONGEST_RUN:
        more = file.read(READ_COMPRESSED)
        data += more
        text = data.decode(errors="replace")
        spans = word_spans(text)
        if not more:
            return text.encode()
        if len(spans) > count:
            return text[: spans[count - 1][1] if count else 0].encode()
    return text[: spans[-1][0] if spans else 0].encode()
