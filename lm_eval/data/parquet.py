"""Read and write Parquet files with pyarrow alone, where `datasets` would give the same rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from lm_eval.data.plain_tables import is_plain
from lm_eval.data.rows import TableRows, as_dataset, no_file, to_dataset
from lm_eval.errors import DataError

#: Splits somebody still holds, by their files as they were when read: tasks that share a data set
#: (one question under twenty prompts) share its rows.
_held: WeakValueDictionary[tuple[Any, ...], Any] = WeakValueDictionary()


def read_parquet(files: Sequence[Path]) -> Any:
    """The rows of one or several files: `TableRows`, or a `datasets.Dataset` where values need
    decoding (images, sounds, data set features of their own).
    """
    key = tuple((file.resolve(), _state(file)) for file in files)
    rows = _held.get(key)
    if rows is None:
        rows = _held[key] = _read(files)
    return rows


def _state(file: Path) -> tuple[int, int]:
    try:
        state = file.stat()
    except OSError:
        return (0, 0)  # reading it will tell
    return (state.st_mtime_ns, state.st_size)


def _read(files: Sequence[Path]) -> Any:
    import pyarrow

    tables = [_table(file) for file in files]
    try:
        table = pyarrow.concat_tables(tables) if len(tables) > 1 else tables[0]
    except pyarrow.ArrowException as error:
        names = ", ".join(str(file) for file in files)
        raise DataError(f"{names}: parts of one split with different columns ({error}).") from error
    return TableRows(table) if is_plain(table.schema) else to_dataset(table)


def _table(file: Path) -> Any:
    import pyarrow
    import pyarrow.parquet

    try:
        if file.stat().st_size == 0:
            raise DataError(f"{file}: the file is empty (0 bytes); copy or fetch it again.")
        # Not `read_table`: that would read columns out of folder names (`lang=en`) as well.
        with pyarrow.parquet.ParquetFile(file) as parquet:
            return parquet.read()
    except FileNotFoundError as error:
        raise no_file(file) from error
    except PermissionError as error:
        raise DataError(f"{file}: may not be read (permission denied).") from error
    except (pyarrow.ArrowException, OSError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise DataError(
            f"{file}: not a readable Parquet file ({reason.rstrip('.')}); copy or fetch it again."
        ) from error


def write_parquet(split: Any, file: Path) -> None:
    """Write a split so that `read_parquet` and `datasets` both give its rows back."""
    if isinstance(split, TableRows):
        import pyarrow.parquet

        pyarrow.parquet.write_table(split.table, file, compression="zstd")
    else:
        as_dataset(split).to_parquet(str(file))
