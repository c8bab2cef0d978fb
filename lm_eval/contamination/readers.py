"""Reads the records of a shard, as pieces of bounded size.

A file of text is one record. In a file of JSON lines each line is a record, in tables each row.
Bytes that are not valid UTF-8 are read as U+FFFD.
"""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import sys
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash

from lm_eval.contamination.corpus import STANDARD_INPUT, Shard
from lm_eval.contamination.matcher import Piece
from lm_eval.contamination.streams import (
    LONGEST_RUN,
    READ,
    READ_COMPRESSED,
    cut_at_whitespace,
    lines,
    next_space,
    next_words,
)
from lm_eval.contamination.words import NOT_TEXT, to_utf8, valid_utf8

#: Rows of a table that are read at a time.
_ROWS = 256
#: What the modules for compressed files and tables raise for damaged files.
_DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError, ValueError)


@dataclass(frozen=True)
class ReadOptions:
    """How the records of a corpus are read."""

    field: str = "text"
    """The field of JSON objects, or the column of tables, that is the text."""
    overlap: int = 0
    """How many words after the end of a range are read, so that no n-gram is lost there."""


@dataclass
class ShardReader:
    """Reads one shard. `pieces` yields its text; the counts are complete when it has ended."""

    shard: Shard
    options: ReadOptions
    size: int = 0
    """How many bytes of text were read."""
    records: int = 0
    """How many records with text were read."""
    numbers: int = 0
    """How many record numbers the shard has: lines without text have a number, too."""
    first_byte: int = 0
    """How many bytes of the first record are in earlier shards."""
    broken: list[tuple[str, int, str]] = field(default_factory=list)
    """(kind of place such as "line", its number from 0, error) of what could not be read."""

    def __post_init__(self) -> None:
        self._hash = xxhash.xxh3_128()
        self._file: Any = None

    @property
    def fingerprint(self) -> str:
        """A hash of the text that was read."""
        return self._hash.hexdigest()

    @property
    def position(self) -> int:
        """How many bytes of the shard's file were read so far."""
        if self._file is None or self._file.closed:
            return 0
        return max(0, int(self._file.tell()) - self.shard.begin)

    def pieces(self) -> Iterator[Piece]:
        """Yields the text of all records, in order.

        If the file is damaged, what was read before is yielded and the error is kept in `broken`.
        """
        kind = self.shard.path.format
        try:
            if self.shard.path.name == STANDARD_INPUT:
                yield from self._stream(sys.stdin.buffer)
            elif kind in ("text", "jsonl"):
                with Path(self.shard.path.name).open("rb") as self._file:
                    yield from self._stream(self._decompressed(self._file))
            else:
                yield from self._table(kind)
        except _DAMAGED as error:
            self._break("row" if kind in ("parquet", "arrow") else "byte", self.numbers, error)

    def _break(self, kind: str, number: int, error: Exception | str) -> None:
        text = (isinstance(error, OSError) and error.strerror) or str(error)
        self.broken.append((kind, number, " ".join(text.split()) or type(error).__name__))

    def _record(self, data: bytes) -> Iterator[Piece]:
        """Yields the text of a record as one piece, or several if it is long; counts it."""
        self._hash.update(data)
        self._hash.update(NOT_TEXT)
        self.size += len(data)
        self.records += 1
        if len(data) <= LONGEST_RUN:
            yield Piece(self.numbers, data)
        else:
            parts = (data[at : at + READ] for at in range(0, len(data), READ))
            yield from cut_at_whitespace(self.numbers, parts)

    # -- streams of bytes ---------------------------------------------------------------------

    def _decompressed(self, file: Any) -> Any:
        compression = self.shard.path.compression
        if compression == ".gz":
            return gzip.GzipFile(fileobj=file)
        if compression == ".bz2":
            return bz2.BZ2File(file)
        if compression == ".xz":
            return lzma.LZMAFile(file)
        if compression == ".zst":
            import pyarrow

            return pyarrow.CompressedInputStream(pyarrow.PythonFile(file, "r"), "zstd")
        return file

    def _stream(self, file: Any) -> Iterator[Piece]:
        if self.shard.path.format == "text":
            yield from self._text(file)
        else:
            yield from self._json_lines(file)

    def _chunks(self, file: Any, count: int | None = None) -> Iterator[bytes]:
        """Yields the next `count` bytes of a file in chunks, or all of them if that is None.

        Ends where the file is damaged, and adds that place to `broken`.
        """
        compressed = bool(self.shard.path.compression)
        size, done = READ_COMPRESSED if compressed else READ, 0
        while count is None or done < count:
            try:
                data = bytes(file.read(size if count is None else min(size, count - done)))
            except _DAMAGED as error:
                self._break("byte", done, error)
                return
            if not data:
                return
            done += len(data)
            yield data

    def _text(self, file: Any) -> Iterator[Piece]:
        """Yields the pieces of a file of text, which is one record, or of the shard's range of it.

        The range is moved to whitespace, and continued by `options.overlap` words.
        """
        begin, end, size = self.shard.begin, self.shard.end, self.shard.path.size
        if end is None:
            yield from cut_at_whitespace(0, self._counted(self._chunks(file)))
        else:
            begin, last = next_space(file, begin, size), next_space(file, end, size)
            self.first_byte = begin
            file.seek(begin)
            chunks = self._counted(self._chunks(file, last - begin))
            yield from cut_at_whitespace(0, chunks)
            if begin < last < size:
                file.seek(last)
                yield Piece(0, next_words(file, self.options.overlap), begins=False)
        self.records = 1 if not self.shard.begin else 0

    def _counted(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        for data in chunks:
            self._hash.update(data)
            self.size += len(data)
            yield data

    def _json_lines(self, file: Any) -> Iterator[Piece]:
        """Yields the pieces of the texts in the lines that begin in the shard."""
        begin, end = self.shard.begin, self.shard.end
        if begin:
            file.seek(begin - 1)
            file.readline()  # the end of a line of the shard before; "\n" if none reaches here
            begin = file.tell()
        for line in lines(self._chunks(file), None if end is None else end - begin):
            if line.strip():
                yield from self._json_record(line)
            self.numbers += 1

    def _json_record(self, line: bytes) -> Iterator[Piece]:
        try:
            value = json.loads(line)
        except UnicodeDecodeError:
            value = _loads_invalid(line)
        except (ValueError, RecursionError) as error:
            if self.broken and self.broken[-1][0] == "byte":
                return  # the line is incomplete because the file is damaged, which is known
            self._break("line", self.numbers, f"not a JSON object on one line ({error})")
            return
        name = self.options.field
        if not isinstance(value, dict) or name not in value:
            keys = ", ".join(map(repr, list(value)[:8])) if isinstance(value, dict) else ""
            problem = f"no field {name!r}; it has {keys}" if keys else "not a JSON object"
            self._break("line", self.numbers, f"{problem}. Choose the field with --field")
        elif isinstance(value[name], str):
            if value[name]:
                yield from self._record(to_utf8(value[name]))
        elif value[name] is not None:
            kind = type(value[name]).__name__
            self._break("line", self.numbers, f"the field {name!r} is not text but {kind}")

    # -- tables -------------------------------------------------------------------------------

    def _table(self, kind: str) -> Iterator[Piece]:
        import pyarrow

        try:
            for column in self._columns(kind):
                if pyarrow.types.is_null(column.type):
                    self.numbers += len(column)
                    continue
                for data in column.cast(pyarrow.large_binary()).to_pylist():
                    if data:
                        yield from self._record(valid_utf8(data))
                    self.numbers += 1
        except pyarrow.ArrowException as error:
            raise ValueError(str(error)) from error

    def _columns(self, kind: str) -> Iterator[Any]:
        """Yields the text column of a table as Arrow arrays, some rows at a time.

        `kind` is "parquet" or "arrow". Raises `ValueError` if there is no such column.
        """
        import pyarrow

        name, path = self.options.field, self.shard.path.name
        if kind == "parquet":
            from pyarrow import parquet

            with parquet.ParquetFile(path) as file:
                _check_column(name, file.schema_arrow)
                for batch in file.iter_batches(batch_size=_ROWS, columns=[name]):
                    yield batch.column(0)
            return
        with pyarrow.memory_map(path) as source:
            try:
                opened = pyarrow.ipc.open_file(source)
                batches = (opened.get_batch(i) for i in range(opened.num_record_batches))
            except pyarrow.ArrowInvalid:  # `datasets` writes the format for streams
                source.seek(0)
                opened = pyarrow.ipc.open_stream(source)
                batches = iter(opened)
            _check_column(name, opened.schema)
            for batch in batches:
                for first in range(0, batch.num_rows, _ROWS):
                    yield batch.column(name).slice(first, _ROWS)


def _check_column(name: str, schema: Any) -> None:
    """Raises `ValueError` if an Arrow schema has no column of text with this name."""
    import pyarrow

    if name not in schema.names:
        raise ValueError(
            f"no column {name!r}; it has {', '.join(map(repr, schema.names))}. Choose the column "
            "with --field"
        )
    kind, types = schema.field(name).type, pyarrow.types
    texts = (types.is_string, types.is_large_string, types.is_binary, types.is_large_binary)
    if not any(is_text(kind) for is_text in (*texts, types.is_null)):
        raise ValueError(f"the column {name!r} is not text but {kind}")


def _loads_invalid(line: bytes) -> Any:
    """Returns the JSON value of a line that is not valid UTF-8; None if it is no JSON."""
    try:
        return json.loads(line.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
