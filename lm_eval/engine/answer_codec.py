"""The binary format of stored answers, with one checksum per answer.

A row of the store holds a batch of answers: the keys of their requests, the packed answers, and one
64-bit checksum per answer over the model's identity, the request type, the key and the answer. A
damaged byte invalidates only the answers that it is part of.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xxhash

from lm_eval.api.instance import Completion
from lm_eval.engine.answer_checks import POSITIVE_TOLERANCE, is_answer
from lm_eval.engine.keys import KEY_SIZE

#: The kind of the rows that hold the reasons of failed requests.
FAILURE = "failure"
_KINDS = ("loglikelihood", "generate_until", "loglikelihood_rolling", FAILURE)
_CHECKSUM_SIZE = 8
#: The first byte of packed answers names their format: fixed-size pairs, or one JSON value per
#: line. `_LIST` is the format of stores without checksums: one JSON list.
_PAIRS, _LINES, _LIST = b"P", b"L", b"J"


@dataclass(frozen=True)
class Batch:
    """The answers of one row that are sound, and the number of those that are not."""

    kind: str
    keys: list[bytes]
    answers: list[Any]
    damaged: int = 0


def pack(
    identity: str, kind: str, keys: Sequence[bytes], answers: Sequence[Any]
) -> tuple[bytes, bytes, bytes]:
    """Returns keys, answers and checksums of a batch as bytes; `unpack` restores them exactly.

    `identity` is that of the model, `kind` the request type or `FAILURE`. Log-likelihood pairs are
    packed as float64 values followed by one byte per greedy flag, all other answers as JSON.
    """
    joined, seed = b"".join(keys), _seed(identity, kind)
    if kind == "loglikelihood" and set(map(type, answers)) == {tuple}:
        # Not zip(*answers): one iterator per answer would trigger garbage collection.
        values, greedy = [a[0] for a in answers], [a[1] for a in answers]
        if set(map(type, values)) == {float}:
            packed = np.array(values, dtype="<f8").tobytes() + bytes(greedy)
            return joined, _PAIRS + packed, _pair_checksums(seed, joined, packed).tobytes()
    lines = [_line(answer) for answer in answers]
    return joined, _LINES + b"\n".join(lines), _line_checksums(seed, keys, lines).tobytes()


def unpack(identity: str, kind: Any, keys: Any, answers: Any, checksums: Any) -> Batch:
    """Returns the sound answers of a row that `pack` has packed, and the number of damaged ones.

    Never raises: the values may be anything that a damaged file contains.
    """
    columns = (keys, answers, checksums)
    sizes = [len(column) if isinstance(column, bytes) else 0 for column in columns]
    count = sizes[0] // KEY_SIZE
    expected = max(count, sizes[2] // _CHECKSUM_SIZE)
    if sizes[0] != KEY_SIZE * count or sizes[2] != _CHECKSUM_SIZE * count or not sizes[1]:
        return Batch(str(kind), [], [], max(expected, 0 if sizes[0] == sizes[2] == 0 else 1))
    best = Batch(str(kind), [], [], expected)
    # The request type and the first byte are named in the row; either may be damaged.
    for possible in (kind, *(other for other in _KINDS if other != kind)):
        if possible not in _KINDS:
            continue
        for form in (answers[:1], *(f for f in (_PAIRS, _LINES) if f != answers[:1])):
            found = _read(_seed(identity, possible), possible, form, keys, answers[1:], checksums)
            if len(found.keys) > len(best.keys):
                best = found
            if len(best.keys) == count:
                return best
    return best


def unpack_unchecked(kind: Any, keys: Any, answers: Any) -> Batch:
    """Returns the answers of a row of a store without checksums.

    Only their form can be checked: the answers of a row that cannot be read, and answers that a
    model could not have given, count as damaged.
    """
    if not isinstance(keys, bytes) or len(keys) % KEY_SIZE or kind not in _KINDS:
        return Batch(str(kind), [], [], max(len(keys) // KEY_SIZE, 1) if keys else 1)
    split = _split_keys(keys)
    try:
        found = _read_pairs(answers[1:]) if answers[:1] == _PAIRS else json.loads(answers[1:])
        values = [_from_json(kind, value) for value in found]
        if len(values) != len(split):
            raise ValueError("another number of answers than keys")
    except (ValueError, TypeError, RecursionError):
        return Batch(kind, [], [], len(split))
    return _sound(kind, split, values, [True] * len(split))


def _read(seed: int, kind: str, form: bytes, keys: bytes, packed: bytes, checksums: bytes) -> Batch:
    """Returns the answers whose checksums are right if they are of this request type and format."""
    split, wanted = _split_keys(keys), np.frombuffer(checksums, dtype="<u8")
    if form == _PAIRS:
        if kind != "loglikelihood" or len(packed) != 9 * len(split):
            return Batch(kind, [], [], len(split))
        right = wanted == _pair_checksums(seed, keys, packed)
        values = np.frombuffer(packed, dtype="<f8", count=len(split))
        flags = np.frombuffer(packed, dtype=np.uint8, offset=8 * len(split))
        if right.all() and (values <= POSITIVE_TOLERANCE).all() and (flags <= 1).all():
            greedy = flags.astype(bool).tolist()
            return Batch(kind, split, list(zip(values.tolist(), greedy, strict=True)))
        return _sound(kind, split, _read_pairs(packed), right.tolist())
    lines = _aligned(seed, split, packed.split(b"\n"), wanted.tolist())
    values_of_lines: list[Any] = []
    for line in lines:
        try:
            values_of_lines.append(None if line is None else _from_json(kind, json.loads(line)))
        except (ValueError, TypeError, RecursionError):
            values_of_lines.append(None)
    return _sound(kind, split, values_of_lines, [line is not None for line in lines])


def _aligned(
    seed: int, keys: Sequence[bytes], lines: Sequence[bytes], checksums: Sequence[int]
) -> list[bytes | None]:
    """Returns the line of each key, or None where its checksum is wrong.

    A damaged line break changes the number of lines. The lines before it are then counted from the
    start, those after it from the end.
    """
    found: list[bytes | None] = [None] * len(keys)
    offsets = (0,) if len(lines) == len(keys) else (0, len(lines) - len(keys))
    for offset in offsets:
        for i, key in enumerate(keys):
            at = i + offset
            if found[i] is None and 0 <= at < len(lines):
                digest = xxhash.xxh3_64_intdigest(key + lines[at], seed=seed)
                found[i] = lines[at] if digest == checksums[i] else None
    return found


def _sound(kind: str, keys: list[bytes], values: list[Any], right: list[bool]) -> Batch:
    """Returns the answers that are `right` and valid answers to requests of this type."""
    kept = [
        i
        for i, value in enumerate(values)
        if right[i] and (isinstance(value, str) if kind == FAILURE else is_answer(kind, value))
    ]
    if len(kept) == len(keys):
        return Batch(kind, keys, values)
    return Batch(kind, [keys[i] for i in kept], [values[i] for i in kept], len(keys) - len(kept))


def _split_keys(keys: bytes) -> list[bytes]:
    return [keys[i : i + KEY_SIZE] for i in range(0, len(keys), KEY_SIZE)]


def _seed(identity: str, kind: str) -> int:
    return xxhash.xxh3_64_intdigest(f"{identity}\0{kind}".encode("utf-8", "surrogatepass"))


def _pair_checksums(seed: int, keys: bytes, packed: bytes) -> np.ndarray[Any, Any]:
    """Returns one checksum per pair; all are computed at once, because there are many.

    Each step maps 64-bit words one to one, so a change of a single word always changes the result.
    """
    count = len(keys) // KEY_SIZE
    words = np.frombuffer(keys, dtype="<u8").reshape(count, 2)
    values = np.frombuffer(packed, dtype="<u8", count=count)
    flags = np.frombuffer(packed, dtype=np.uint8, offset=8 * count).astype(np.uint64)
    mixed = np.full(count, seed, dtype=np.uint64)
    for word in (words[:, 0], words[:, 1], values, flags):
        mixed ^= word
        mixed *= _PRIME
        mixed ^= mixed >> _HALF
    mixed *= _PRIME
    mixed ^= mixed >> _HALF
    return mixed.astype("<u8", copy=False)


_PRIME, _HALF = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


def _line_checksums(
    seed: int, keys: Sequence[bytes], lines: Sequence[bytes]
) -> np.ndarray[Any, Any]:
    digest = xxhash.xxh3_64_intdigest
    pairs = zip(keys, lines, strict=True)
    return np.array([digest(key + line, seed=seed) for key, line in pairs], dtype="<u8")


def _line(answer: Any) -> bytes:
    """Returns an answer as JSON on one line; one with its reasoning or finish reason as a table."""
    if type(answer) is Completion:
        details = {k: v for k, v in answer.details.items() if v is not None}
        answer = {"text": str(answer), **details} if details else str(answer)
    return json.dumps(answer, default=float).encode()


#: The types of the fields of a generated answer.
_DETAILS: dict[str, Any] = {
    **dict.fromkeys(("text", "reasoning", "finish_reason"), str),
    **dict.fromkeys(("tokens", "reasoning_tokens"), int),
}


def _from_json(kind: str, value: Any) -> Any:
    """Returns an answer that `_line` has written. Raises `TypeError` if it is none."""
    if type(value) is dict:
        if not all(isinstance(v, _DETAILS.get(name, ())) for name, v in value.items()):
            raise TypeError("not a generated answer")
        return Completion(**value)
    if kind == "loglikelihood":
        return tuple(value)
    return value


def _read_pairs(packed: bytes) -> list[Any]:
    """Returns the pairs that `pack` has packed. Raises `ValueError` for another length."""
    count = len(packed) // 9
    values = np.frombuffer(packed, dtype="<f8", count=count).tolist()
    flags = np.frombuffer(packed, dtype=np.uint8, offset=8 * count).tolist()
    # A flag is 0 or 1; of any other value, the pair is damaged, which the text marks.
    greedy = [bool(flag) if flag <= 1 else "damaged" for flag in flags]
    return list(zip(values, greedy, strict=True))
