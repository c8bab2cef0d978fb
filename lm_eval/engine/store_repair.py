"""Rescues what can be read of a damaged answer store.

SQLite refuses to go on at a damaged page, although the other pages are intact. The rows of these
are copied to a new file, which takes the place of the damaged one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from lm_eval.engine.store_schema import UNCHECKED, Schema, create_tables

#: Size of SQLite's file header.
_HEADER_SIZE = 100
#: A row of the smallest batch takes at least this many bytes of the file.
_SMALLEST_ROW = 32


def structural_damage(connection: sqlite3.Connection) -> str | None:
    """Returns what is wrong with the structure of the file; None if it is sound.

    Checks every page, and that tables and indexes agree, but not the content of answers: their
    checksums are checked when they are read.
    """
    try:
        (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise
        return str(error)
    return None if found == "ok" else " ".join(str(found).split())


def full_size(path: Path) -> int | None:
    """Returns the size that a store had before its end was cut off; None if it is complete.

    A file with a log is complete: its end may be in the log.
    """
    log = path.with_name(f"{path.name}-wal")
    try:
        if log.is_file() and log.stat().st_size:
            return None
        with path.open("rb") as file:
            header = file.read(_HEADER_SIZE)
            actual = file.seek(0, 2)
    except OSError:
        return None
    if len(header) < _HEADER_SIZE or not header.startswith(b"SQLite format 3\0"):
        return None
    page = int.from_bytes(header[16:18], "big")
    size = (65536 if page == 1 else page) * int.from_bytes(header[28:32], "big")
    # A header that promises many times the content is damaged itself.
    return size if actual < size <= 64 * actual else None


def copy_readable(source: sqlite3.Connection, target: sqlite3.Connection, size: int) -> int:
    """Copies all rows that can be read from a damaged store; returns the number of answers.

    `target` is an empty database, which gets the tables of a store. `size` is that of the damaged
    file in bytes. Raises `sqlite3.DatabaseError` if not even the schema can be read.
    """
    create_tables(target)
    schema = Schema.of(source)
    copied = 0
    with target:
        for row in _readable(source, "models", "id, identity", size):
            target.execute("INSERT OR IGNORE INTO models VALUES (?, ?)", row[1:])
        if schema.unchecked is not None:
            target.execute(
                f"CREATE TABLE {UNCHECKED} (model INTEGER NOT NULL, kind TEXT NOT NULL, "
                "keys BLOB NOT NULL, answers BLOB NOT NULL)"
            )
            for row in _readable(source, schema.unchecked, "model, kind, keys, answers", size):
                copied += _copy(target, UNCHECKED, row)
        if schema.checked:
            columns = "model, kind, keys, answers, checksums"
            for row in _readable(source, "answers", columns, size):
                copied += _copy(target, "answers", row)
    return copied


def _copy(target: sqlite3.Connection, table: str, row: tuple[Any, ...]) -> int:
    """Inserts a row with its number; returns how many answers it has, 0 if it is unusable."""
    places = ", ".join("?" for _ in row[1:])
    columns = ["model", "kind", "keys", "answers", "checksums"][: len(row) - 1]
    try:
        target.execute(
            f"INSERT INTO {table} (rowid, {', '.join(columns)}) VALUES (?, {places})", row
        )
    except sqlite3.Error:  # a damaged value that the table does not allow
        return 0
    return len(row[3]) // 16 if isinstance(row[3], bytes) else 0


def _readable(
    source: sqlite3.Connection, table: str, columns: str, size: int
) -> Iterator[tuple[Any, ...]]:
    """Yields `(rowid, *columns)` of every row that can be read, in order."""
    last, bound = 0, _last_row(source, table, size)
    query = f"SELECT rowid, {columns} FROM {table} NOT INDEXED WHERE rowid"
    while last < bound:
        try:
            for row in source.execute(f"{query} > ? ORDER BY rowid", (last,)):
                if not isinstance(row[0], int) or row[0] <= last:
                    raise sqlite3.DatabaseError("rows out of order")
                last = row[0]
                yield row
            return
        except sqlite3.Error:
            last += 1
        while last <= bound:  # look for the next row that can be read, one by one
            try:
                found = source.execute(f"{query} = ?", (last,)).fetchone()
                if found is not None and found[0] == last:
                    yield found
                    break
            except sqlite3.Error:
                pass
            last += 1


def _last_row(source: sqlite3.Connection, table: str, size: int) -> int:
    """Returns an upper bound of the row numbers."""
    bound = size // _SMALLEST_ROW
    for hint in ("NOT INDEXED", ""):
        try:
            found = source.execute(f"SELECT max(rowid) FROM {table} {hint}").fetchone()[0]
            if isinstance(found, int) and found <= bound:
                return found
        except sqlite3.Error:
            continue
    return bound


def replace_damaged(path: Path, source: sqlite3.Connection) -> tuple[Path, int]:
    """Replaces the damaged file by a new one with all rows that can be read.

    Returns the path under which the damaged file is kept, and the number of answers that were
    copied. Closes `source`. Raises `sqlite3.Error` or `OSError` if that fails; the file is then
    unchanged. If another process uses the file, the error is that the database is locked.
    """
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
    kept, new = path.with_name(f"{path.name}.damaged-{stamp}"), path.with_name(f".{path.name}.new")
    try:
        _require_alone(source)
        new.unlink(missing_ok=True)
        target = sqlite3.connect(new)
        try:
            copied = copy_readable(source, target, path.stat().st_size)
        finally:
            target.close()
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        source.close()
    for suffix in ("-wal", "-shm"):  # the rows in the log are copied
        log = path.with_name(f"{path.name}{suffix}")
        if log.is_file():
            log.replace(kept.with_name(f"{kept.name}{suffix}"))
    path.replace(kept)
    new.replace(path)
    return kept, copied


def _require_alone(connection: sqlite3.Connection) -> None:
    """Raises `sqlite3.OperationalError` if another process has the file open.

    Leaving WAL mode needs the file for oneself. Other errors are those of the damaged file.
    """
    try:
        connection.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.OperationalError as error:
        if "locked" in str(error):
            raise
    except sqlite3.DatabaseError:
        pass
