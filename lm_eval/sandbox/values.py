"""Plain values as bytes, and back: all that a program and its tests can exchange.

The reader builds only values of a closed list of types, and each of exactly that type: `None`,
`bool`, `int`, `float`, `complex`, `str`, `bytes`, `bytearray`, `list`, `tuple`, `set`, `frozenset`,
`dict`, `deque`, `range`, `Fraction`, `Decimal`, and dates and times without a zone. Instances of
subclasses are written as the plain value that they contain: a `Counter` as a `dict`, a named tuple
as a `tuple`, an `IntEnum` as an `int`. A number of numpy is written as Python's. All other objects
stay where they are, and are referred to (`References`).
"""

from __future__ import annotations

import builtins
import datetime
import struct
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any, Protocol

_DEPTH = 150


class ValueRefusedError(Exception):
    """A value that is too large or too deeply nested to be written."""


class MalformedError(Exception):
    """Bytes that are not a value as this module writes it."""


class References(Protocol):
    """Names objects that are not plain, for one side of a channel."""

    def describe(self, value: Any) -> tuple[Any, ...]:
        """Returns a tuple of plain values by which the other side can refer to an object."""

    def resolve(self, description: tuple[Any, ...]) -> Any:
        """Returns the object, or the stand-in for one, that the other side has described."""


def _timedelta(value: datetime.timedelta) -> tuple[Any, ...]:
    return value.days, value.seconds, value.microseconds


def _date(value: datetime.date) -> tuple[Any, ...]:
    return value.year, value.month, value.day


def _time(value: datetime.time | datetime.datetime) -> tuple[Any, ...]:
    return value.hour, value.minute, value.second, value.microsecond


#: Types that are rebuilt by a call: a name, the type, and the arguments of the call.
_REBUILT: list[tuple[str, type, Callable[[Any], tuple[Any, ...]]]] = [
    ("range", range, lambda value: (value.start, value.stop, value.step)),
    ("fraction", Fraction, lambda value: (value.numerator, value.denominator)),
    ("decimal", Decimal, lambda value: (Decimal.__str__(value),)),
    ("datetime", datetime.datetime, lambda value: (*_date(value), *_time(value))),
    ("date", datetime.date, _date),
    ("time", datetime.time, _time),
    ("timedelta", datetime.timedelta, _timedelta),
]
_BUILDERS = {name: kind for name, kind, _ in _REBUILT}

_SEQUENCES: dict[bytes, type] = {
    b"l": list,
    b"t": tuple,
    b"s": set,
    b"z": frozenset,
    b"q": deque,
}
_CODES = {kind: code for code, kind in _SEQUENCES.items()}
_PLAIN = (bool, int, float, complex, str, bytes, bytearray, *_CODES, dict)


def plain_base(value: Any) -> type | None:
    """Returns the plain type that `value` is an instance of, exactly or by inheritance."""
    kind = type(value)
    if kind in _PLAIN:
        return kind
    return next((base for base in _PLAIN if issubclass(kind, base)), None)


def is_builtin(kind: type) -> bool:
    """Returns whether a type is one of Python's own, so that its name is enough."""
    return vars(builtins).get(kind.__name__) is kind


class Writer:
    """Writes values as bytes.

    Args:
        references: what names objects that are not plain.
        limit: the most bytes that one value may take.
    """

    def __init__(self, references: References, limit: int) -> None:
        self._references = references
        self._limit = limit

    def write(self, value: Any) -> bytes:
        """Returns the bytes of one value; raises `ValueRefusedError` if it cannot be written."""
        out = bytearray()
        self._put(value, out, 0)
        return bytes(out)

    def _put(self, value: Any, out: bytearray, depth: int) -> None:
        if depth > _DEPTH or len(out) > self._limit:
            raise ValueRefusedError("nested too deeply" if depth > _DEPTH else "too large")
        if value is None or value is True or value is False:
            out += b"N" if value is None else b"T" if value else b"F"
            return
        base = plain_base(value)
        if base is int or base is bool:
            size = int.bit_length(value) // 8 + 1
            self._make_room(size, out)
            self._put_bytes(b"i", int.to_bytes(value, size, "little", signed=True), out)
        elif base is float:
            out += b"f" + struct.pack("<d", value)
        elif base is str:
            self._make_room(str.__len__(value), out)
            self._put_bytes(b"u", str.encode(value, "utf-8", "surrogatepass"), out)
        elif base is dict:
            out += b"d" + struct.pack("<Q", dict.__len__(value))
            for key, item in dict.items(value):
                self._put(key, out, depth + 1)
                self._put(item, out, depth + 1)
        elif base in _CODES:
            container: Any = base
            out += _CODES[base] + struct.pack("<Q", container.__len__(value))
            for item in container.__iter__(value):
                self._put(item, out, depth + 1)
        elif base is complex:
            out += b"c" + struct.pack("<dd", value.real, value.imag)
        elif base is not None:  # bytes and bytearray
            self._make_room(memoryview(value).nbytes, out)
            self._put_bytes(b"b" if base is bytes else b"y", bytes(memoryview(value)), out)
        else:
            self._put_other(value, out, depth)

    def _put_bytes(self, code: bytes, data: bytes, out: bytearray) -> None:
        self._make_room(len(data), out)
        out += code + struct.pack("<Q", len(data)) + data

    def _make_room(self, size: int, out: bytearray) -> None:
        """Refuses a value before a copy of it is made."""
        if len(out) + size > self._limit:
            raise ValueRefusedError("too large")

    def _put_other(self, value: Any, out: bytearray, depth: int) -> None:
        kind = type(value)
        for name, rebuilt, arguments in _REBUILT:
            if issubclass(kind, rebuilt) and getattr(value, "tzinfo", None) is None:
                out += b"r"
                self._put((name, *arguments(value)), out, depth + 1)
                return
        if kind.__module__ == "numpy" and hasattr(kind, "item") and getattr(value, "ndim", 1) == 0:
            self._put(value.item(), out, depth + 1)
            return
        out += b"o"
        self._put(self._references.describe(value), out, depth + 1)


class Reader:
    """Reads what a `Writer` has written; raises `MalformedError` for anything else.

    Args:
        references: what knows the objects of the other side.
    """

    def __init__(self, references: References) -> None:
        self._references = references

    def read(self, data: bytes) -> Any:
        """Returns the one value that `data` contains."""
        try:
            value, end = self._take(data, 0, 0)
        except MalformedError:
            raise
        # Unhashable keys, numbers out of range, bytes that are not text, a missing argument …
        except (ValueError, TypeError, ArithmeticError, LookupError, struct.error) as error:
            raise MalformedError(f"{type(error).__name__}: {error}") from None
        if end != len(data):
            raise MalformedError("more bytes than one value")
        return value

    def _take(self, data: bytes, at: int, depth: int) -> tuple[Any, int]:
        if depth > _DEPTH + 2 or at >= len(data):
            raise MalformedError("too deep" if at < len(data) else "too short")
        code, at = data[at : at + 1], at + 1
        if code in b"NTF":
            return {b"N": None, b"T": True, b"F": False}[code], at
        if code == b"f":
            return struct.unpack_from("<d", data, at)[0], at + 8
        if code == b"c":
            return complex(*struct.unpack_from("<dd", data, at)), at + 16
        if code in b"ro":
            description, at = self._take(data, at, depth + 1)
            return self._rebuild(code, description), at
        (size,) = struct.unpack_from("<Q", data, at)
        at += 8
        if size > len(data) - at:
            raise MalformedError("too short")
        if code in b"iuby":
            return self._from_bytes(code, data[at : at + size]), at + size
        if code == b"d":
            return self._take_dict(data, at, depth, size)
        items = []
        for _ in range(size):
            item, at = self._take(data, at, depth + 1)
            items.append(item)
        return _SEQUENCES[code](items), at

    def _take_dict(self, data: bytes, at: int, depth: int, size: int) -> tuple[Any, int]:
        found = {}
        for _ in range(size):
            key, at = self._take(data, at, depth + 1)
            found[key], at = self._take(data, at, depth + 1)
        return found, at

    def _from_bytes(self, code: bytes, data: bytes) -> Any:
        if code == b"i":
            return int.from_bytes(data, "little", signed=True)
        if code == b"u":
            return data.decode("utf-8", "surrogatepass")
        return data if code == b"b" else bytearray(data)

    def _rebuild(self, code: bytes, description: Any) -> Any:
        if type(description) is not tuple:
            raise MalformedError("not a description")
        if code == b"o":
            return self._references.resolve(description)
        return _BUILDERS[description[0]](*description[1:])
