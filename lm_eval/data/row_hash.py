"""Hashes of rows that are equal for Arrow tables and for dictionaries with the same values.

Values are hashed column by column in the layout of Arrow: null flags, lengths and contents, each as
a separate stream. Python rows are hashed in the same layout. So a JSON file, its Parquet copy in a
mirror and the dataset on the hub have the same hash, and a JSON file is hashed without importing
pyarrow. The width of numbers (int32 or int64) and the order of columns do not affect the hash; the
order of rows does.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from itertools import chain
from typing import Any


def hash_table(table: Any) -> str:
    """Returns a SHA-256 hash (64 hexadecimal digits) of the rows of an Arrow table."""
    streams = _Streams()
    _add_table(streams, table)
    return streams.digest()


def hash_values(values: list[Any]) -> str:
    """Returns a SHA-256 hash (64 hexadecimal digits) of rows given as Python values.

    It equals that of `hash_table` for a table with the same rows.
    """
    streams = _Streams()
    streams.values("", values)
    return streams.digest()


class _Streams:
    """One hash per stream of values; `digest` combines them.

    A stream is named by the path of a column, such as `.choices[].text`, and the part of it that is
    hashed: `?` null flags, `@` lengths, `#` numbers and booleans, `"` strings.
    """

    def __init__(self) -> None:
        self._hashes: dict[str, Any] = defaultdict(hashlib.sha256)

    def add(self, path: str, part: str, content: Any) -> None:
        """Appends bytes to the stream of `part` (see the class) of the column `path`.

        A stream without content does not count.
        """
        if len(content):
            self._hashes[path + part].update(content)

    def digest(self) -> str:
        """Returns the hash of all streams, in the order of their names."""
        whole = hashlib.sha256()
        for path in sorted(self._hashes):
            whole.update(f"{path}\0{self._hashes[path].hexdigest()}\0".encode(errors="replace"))
        return whole.hexdigest()

    def values(self, path: str, values: list[Any]) -> None:
        """Adds a column of Python values, in the layout that Arrow would use.

        Values of mixed types, or of types that Arrow does not have, are hashed by their `repr`.
        """
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
        elif values:  # mixed types, or types that Arrow does not have
            self._texts(path, [repr(value).encode(errors="replace") for value in values])

    def _texts(self, path: str, texts: list[bytes]) -> None:
        self.add(path, "@", array("q", map(len, texts)))
        self.add(path, '"', b"".join(texts))


def _add_table(streams: _Streams, table: Any) -> None:
    """Adds all columns of an Arrow table."""
    streams.add("", "?", b"\1" * table.num_rows)
    for name in table.column_names:
        for chunk in table.column(name).chunks:
            _add_column(streams, f".{name}", chunk)


def _add_column(streams: _Streams, path: str, values: Any) -> None:
    """Adds the values of an Arrow array to the streams of the column `path`."""
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
        _add_column(streams, f"{path}[]", values.flatten())
    elif types.is_struct(kind):
        for number, field in enumerate(values.flatten()):
            _add_column(streams, f"{path}.{kind.field(number).name}", field)
    else:
        streams.values(path, values.to_pylist())
