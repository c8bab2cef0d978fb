"""Reads and writes Parquet files with pyarrow; `datasets` is used only if values need decoding."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from lm_eval.data.plain_tables import is_plain
from lm_eval.data.rows import TableRows, as_dataset, missing_file_error, to_dataset
from lm_eval.errors import DataError

#: Splits that are still in use, by the paths, times and sizes of their files. Tasks with the same
#: dataset (for example one task per prompt) share its rows.
_cache: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def read_parquet(files: Sequence[Path]) -> Any:
    """Returns the rows of one split, in one or several Parquet files, as `TableRows`.

    Returns a `datasets.Dataset` instead if values need decoding (images, audio, special features).
    Unchanged files that are still in use are not read again. Raises `DataError` if a file is
    missing or damaged, or if the files have different columns.
    """
    key = tuple((file.resolve(), _version(file)) for file in files)
    rows = _cache.get(key)
    if rows is None:
        rows = _cache[key] = _read(files)
    return rows


def _version(file: Path) -> tuple[int, int]:
    """Returns modification time (ns) and size of a file; zeros if it does not exist."""
    try:
        status = file.stat()
    except OSError:
        return (0, 0)  # reading the file will raise the error
    return (status.st_mtime_ns, status.st_size)


def _read(files: Sequence[Path]) -> Any:
    import pyarrow

    tables = [_read_table(file) for file in files]
    try:
        table = pyarrow.concat_tables(tables) if len(tables) > 1 else tables[0]
    except pyarrow.ArrowException as error:
        names = ", ".join(str(file) for file in files)
        raise DataError(
            f"{names}: these files are parts of one split, but have different columns ({error}). "
            "Give all of them the same columns, or make them different splits."
        ) from error
    return TableRows(table) if is_plain(table.schema) else to_dataset(table)


def _read_table(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        if file.stat().st_size == 0:
            raise DataError(f"{file}: the file is empty (0 bytes); copy or fetch it again.")
        # Not `read_table`: it would add columns from folder names such as `lang=en`.
        with pyarrow.parquet.ParquetFile(file) as parquet:
            return parquet.read()
    except FileNotFoundError as error:
        raise missing_file_error(file) from error
    except PermissionError as error:
        raise DataError(
            f"{file}: the file cannot be read (permission denied). Check its permissions."
        ) from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{file}: not a readable Parquet file ({reason.rstrip('.')}); copy or fetch it again."
        ) from error


def write_parquet(split: Any, file: Path) -> None:
    """Writes a split to a Parquet file that `read_parquet` and `datasets` can both read.

    An existing file is overwritten. Raises `OSError` if the file cannot be written.
    """
    if isinstance(split, TableRows):
        import pyarrow.parquet

        pyarrow.parquet.write_table(split.table, file, compression="zstd")
    else:
        as_dataset(split).to_parquet(str(file))
