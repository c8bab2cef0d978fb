"""Hashes of rows that are the same for a table and for dictionaries with the same values.

Values are hashed column by column, as Arrow lays them out: presence, lengths and contents each in
a stream of their own. Plain Python rows are laid out the same way, so a JSON file, its Parquet
copy in a mirror and the data set on the hub agree, and no table library is needed for the first.
Sizes of numbers (int32 or int64) and the order of columns do not matter; the order of rows does.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from itertools import chain
from typing import Any


def hash_table(table: Any) -> str:
    """Returns 64 hexadecimal digits that stand for the rows of an Arrow table."""
    streams = _Streams()
    _feed_table(streams, table)
    return streams.digest()


def hash_values(values: list[Any]) -> str:
    """Returns 64 hexadecimal digits that stand for rows that are Python values."""
    streams = _Streams()
    streams.values("", values)
    return streams.digest()


class _Streams:
    """Hashes by path: `choices[].text` and the like, with a mark for what is hashed."""

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = defaultdict(hashlib.sha256)

    def add(self, path: str, mark: str, content: Any) -> None:
        if len(content):
            self._hashes[path + mark].update(content)

    def digest(self) -> str:
        whole = hashlib.sha256()
        for path in sorted(self._hashes):
            whole.update(f"{path}\0{self._hashes[path].hexdigest()}\0".encode(errors="replace"))
        return whole.hexdigest()

    def values(self, path: str, values: list[Any]) -> None:
        """Python values, laid out as Arrow would."""
        self.add(path, "?", bytes([value is not None for value in values]))
        values = [value for value in values if value is not None]
        kinds = set(map(type, values))
        kind = kinds.pop() if len(kinds) == 1 else None
        if not values:
            return
        if kind is bool:
            self.add(path, "#", bytes(values))
        elif kind is int and min(values) >= -(2**63) and max(values) < 2**63:
            self.add(path, "#", array("q", values))
        elif kind is float:
            self.add(path, "#", array("d", values))
        elif kind is str:
            self._texts(path, [value.encode(errors="surrogatepass") for value in values])
        elif kind is list:
            self.add(path, "@", array("q", map(len, values)))
            self.values(f"{path}[]", list(chain.from_iterable(values)))
        elif kind is dict:
            for name in dict.fromkeys(chain.from_iterable(values)):
                self.values(f"{path}.{name}", [value.get(name) for value in values])
        elif values:  # of several kinds, or of none that tables know
            self._texts(path, [repr(value).encode(errors="replace") for value in values])

    def _texts(self, path: str, texts: list[bytes]) -> None:
        self.add(path, "@", array("q", map(len, texts)))
        self.add(path, '"', b"".join(texts))


def _feed_table(streams: _Streams, table: Any) -> None:
    streams.add("", "?", b"\1" * table.num_rows)
    for name in table.column_names:
        for chunk in table.column(name).chunks:
            _feed(streams, f".{name}", chunk)


def _feed(streams: _Streams, path: str, values: Any) -> None:
    import numpy as np
    import pyarrow
    from pyarrow import compute, types

    kind = values.type
    streams.add(path, "?", values.is_valid().to_numpy(zero_copy_only=False).tobytes())
    if values.null_count:
        values = values.drop_null()
    if not len(values):
        return
    if types.is_boolean(kind):
        streams.add(path, "#", values.to_numpy(zero_copy_only=False).tobytes())
    elif types.is_integer(kind) and not types.is_uint64(kind):
        streams.add(path, "#", values.cast(pyarrow.int64()).to_numpy().tobytes())
    elif types.is_float32(kind) or types.is_float64(kind):
        streams.add(path, "#", values.cast(pyarrow.float64()).to_numpy().tobytes())
    elif types.is_string(kind) or types.is_large_string(kind):
        text = values.cast(pyarrow.large_string())
        _, offsets, content = text.buffers()
        ends = np.frombuffer(offsets, np.int64)[text.offset : text.offset + len(text) + 1]
        streams.add(path, "@", np.diff(ends).tobytes())
        if content is not None:
            streams.add(path, '"', memoryview(content)[ends[0] : ends[-1]])
    elif types.is_list(kind) or types.is_large_list(kind):
        lengths = compute.list_value_length(values).cast(pyarrow.int64())
        streams.add(path, "@", lengths.to_numpy().tobytes())
        _feed(streams, f"{path}[]", values.flatten())
    elif types.is_struct(kind):
        for number, field in enumerate(values.flatten()):
            _feed(streams, f"{path}.{kind.field(number).name}", field)
    else:
        streams.values(path, values.to_pylist())
