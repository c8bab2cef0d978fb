"""Ways to damage a file, as disks, transfers and editors do."""

from __future__ import annotations

import random
import re


def damaged(content: bytes, draw: random.Random) -> bytes:
    """Returns `content` damaged in a random way; never equal to it, unless it is empty."""
    changed = content
    while changed == content and content:
        changed = draw.choice(_WAYS)(content, draw)
    return changed


def _flip(content: bytes, draw: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(draw.choice((1, 1, 1, 2, 8, 64))):
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
    return bytes(changed)


def _overwrite(content: bytes, draw: random.Random) -> bytes:
    at, size = draw.randrange(len(content)), draw.choice((1, 4, 16, 512, 4096))
    filling = draw.choice((bytes(size), b"\xff" * size, draw.randbytes(size)))
    return (content[:at] + filling + content[at + size :])[: len(content)]


def _cut(content: bytes, draw: random.Random) -> bytes:
    return content[: draw.randrange(len(content))]


def _remove(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    return content[:at] + content[at + draw.choice((1, 7, 100, 4096)) :]


def _insert(content: bytes, draw: random.Random) -> bytes:
    at = draw.randrange(len(content))
    filling = draw.choice((b"\0", b"\n", b"{", b"9", draw.randbytes(20), content[:100]))
    return content[:at] + filling + content[at:]


def _digit(content: bytes, draw: random.Random) -> bytes:
    digits = [found.start() for found in re.finditer(rb"\d", content)]
    if not digits:
        return _flip(content, draw)
    at = draw.choice(digits)
    return content[:at] + str(draw.randrange(10)).encode() + content[at + 1 :]


def _value(content: bytes, draw: random.Random) -> bytes:
    """Replaces a JSON value by one of another type."""
    values = [found.span(1) for found in re.finditer(rb'": ("[^"]*"|-?[\d.]+|true|null)', content)]
    if not values:
        return _overwrite(content, draw)
    start, end = draw.choice(values)
    other = draw.choice((b"null", b"true", b"-7", b'"text"', b"[]", b"{}", b"1e999", b"[" * 2000))
    return content[:start] + other + content[end:]


_WAYS = (_flip, _overwrite, _cut, _remove, _insert, _digit, _value)
