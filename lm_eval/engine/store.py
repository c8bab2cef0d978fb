"""Keep every answer the moment it exists, and find it again.

One SQLite file in WAL mode, shared by as many runs and models as like. Answers are written a batch
at a time, one row a batch: their keys in a blob, their values in another. A row is there whole or
not at all, whatever kills the process. Commits do not wait for the disk; beside them the log is
brought there once a second (`syncing.py`), so what a power cut can take is the last second. It
cannot spoil the file: SQLite waits for the disk wherever the order of writing matters.

On opening, one model's answers are read into a dictionary, so a look-up costs no query.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sqlite3
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from lm_eval.engine.keys import SIZE
from lm_eval.engine.syncing import Syncing
from lm_eval.errors import StoreError

logger = logging.getLogger(__name__)

#: Of the file, in its header: "LMev", so that no other SQLite file is taken for a store.
APPLICATION = 0x4C4D6576
#: Of the layout. A file of a newer one is refused. Files get number 2 with their first failure:
#: rows of kind `FAILURE`, which an older version would take for answers.
FORMAT = 2
FAILURE = "failure"
#: The reason that stands for an answer which is to be asked for again.
FORGOTTEN = "asked again"
#: Seconds to wait for another process that writes.
PATIENCE = 60.0
#: Bytes below which a disk counts as full: SQLite calls it by several names.
_NO_SPACE = 64 * 1024

_LAYOUT = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, identity TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    model INTEGER NOT NULL, kind TEXT NOT NULL, keys BLOB NOT NULL, answers BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_of_model ON answers (model);
PRAGMA application_id = {APPLICATION};
PRAGMA user_version = 1;
COMMIT;
"""

#: Stands for an answer that is not there.
MISSING: Any = object()


class AnswerStore:
    """The answers of one model in a file that may hold others' too."""

    def __init__(self, path: str | Path, identity: str, read_only: bool = False) -> None:
        self.path = Path(path)
        self._answers: dict[bytes, Any] = {}
        self._failures: dict[bytes, str] = {}
        self._read_up_to = 0
        self.identity = identity
        self._connection = _connect(self.path, read_only)
        self._syncing = Syncing(self.path)
        try:
            if not read_only:
                with self._connection:
                    self._connection.execute(
                        "INSERT OR IGNORE INTO models (identity) VALUES (?)", (identity,)
                    )
            found = self._connection.execute(
                "SELECT id FROM models WHERE identity = ?", (identity,)
            ).fetchone()
            self._model = int(found[0]) if found else -1
            self.refresh()
        except sqlite3.Error as error:
            self._connection.close()
            raise _told(self.path, error) from error
        except StoreError:
            self._connection.close()
            raise

    def __len__(self) -> int:
        return len(self._answers)

    def refresh(self) -> None:
        """Read what other processes have added meanwhile."""
        rows = self._connection.execute(
            "SELECT rowid, kind, keys, answers FROM answers WHERE model = ? AND rowid > ?",
            (self._model, self._read_up_to),
        )
        for row, kind, keys, answers in rows:
            self._read_up_to = row
            cut = [keys[i : i + SIZE] for i in range(0, len(keys), SIZE)]
            try:
                self._take_in(kind, cut, _unpack(kind, answers))
            except (ValueError, TypeError) as error:
                raise _damaged(self.path, f"row {row}: {error}") from error

    def _take_in(self, kind: str, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Notes what a row holds; of several rows with the same key the last one counts."""
        now, before = self._answers, self._failures
        if kind == FAILURE:
            now, before = self._failures, self._answers
        now.update(zip(keys, values, strict=True))
        if before:
            for key in keys:
                before.pop(key, None)

    def find(self, keys: Iterable[bytes | None]) -> list[Any]:
        """The answer for each key, or `MISSING`."""
        get = self._answers.get
        return [MISSING if key is None else get(key, MISSING) for key in keys]

    def failure(self, key: bytes | None) -> str | None:
        """The reason why a request got no answer; None if it did, or was not asked."""
        reason = None if key is None else self._failures.get(key)
        return None if reason == FORGOTTEN else reason

    def add_failures(self, reasons: Mapping[bytes, str]) -> None:
        """Notes requests that got no answer; an answer that was stored for one is forgotten."""
        if not reasons:
            return
        try:
            with self._connection:
                self._connection.execute(f"PRAGMA user_version = {FORMAT}")
        except sqlite3.Error as error:
            raise _told(self.path, error) from error
        self.add(FAILURE, list(reasons), list(reasons.values()))

    def add(self, kind: str, keys: Sequence[bytes], answers: Sequence[Any]) -> None:
        """Write a batch of answers, all or none; on return they outlive this process."""
        if not keys:
            return
        try:
            self._syncing.check()
            with self._connection:
                self._connection.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?)",
                    (self._model, kind, b"".join(keys), _pack(kind, answers)),
                )
        except (OSError, sqlite3.Error) as error:
            raise _told(self.path, error) from error
        self._syncing.soon()
        self._take_in(kind, keys, answers)

    def forget(self, keys: Iterable[bytes | None]) -> None:
        """Forgets the answers to some requests of this model; all others stay."""
        known = [key for key in keys if key in self._answers or key in self._failures]
        self.add_failures({key: FORGOTTEN for key in known if key is not None})

    def close(self) -> None:
        self._connection.close()  # the last to close brings the log into the file
        self._syncing.now()

    def __enter__(self) -> AnswerStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    try:
        if read_only:
            return _checked(path, _open_to_read(path), read_only)
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=PATIENCE, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise _told(path, error) from error
    return _checked(path, connection, read_only)


def _open_to_read(path: Path) -> sqlite3.Connection:
    """Without changing anything.

    Where we may write, SQLite needs to, for readers and writers to know of one another; it tidies
    up after itself. Where nobody may, no other process can be writing either; then a log that a
    killed run has left is read in a copy.
    """
    if not path.is_file():
        raise StoreError(f"{path}: there is no store of answers.")
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        return _connected(path, "rw")
    log = path.with_name(f"{path.name}-wal")
    if not log.is_file() or not log.stat().st_size:
        return _connected(path, "ro&immutable=1")
    with tempfile.TemporaryDirectory(prefix="lm_eval_store_") as folder:
        for file in (path, log):
            shutil.copyfile(file, Path(folder, file.name))
        on_disk = _connected(Path(folder, path.name), "rw")
        in_memory = sqlite3.connect(":memory:")
        try:
            on_disk.backup(in_memory)
        finally:
            on_disk.close()
    return in_memory


def _connected(path: Path, mode: str) -> sqlite3.Connection:
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=PATIENCE)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _checked(path: Path, connection: sqlite3.Connection, read_only: bool) -> sqlite3.Connection:
    try:
        connection.execute("BEGIN")  # another process may be making it: all of this, or none
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.rollback()
        if not empty and application != APPLICATION:
            raise StoreError(f"{path}: is a database, but not a store of answers; name another.")
        if layout > FORMAT:
            raise StoreError(
                f"{path}: was written by a newer version of lm_eval (format {layout}, this one "
                f"reads up to {FORMAT}). Use that version, or another file."
            )
        if read_only:
            return connection
        mode = _switch_to_log(connection)
        # Where the file system has no WAL, each commit must wait for the disk.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        if empty:
            connection.executescript(_LAYOUT)
        return connection
    except sqlite3.Error as error:
        connection.close()
        raise _told(path, error) from error
    except StoreError:
        connection.close()
        raise


def _switch_to_log(connection: sqlite3.Connection) -> str:
    """WAL, where the file system has it; the one thing that SQLite does not wait for by itself."""
    give_up = time.monotonic() + PATIENCE
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _told(path: Path, error: Exception) -> StoreError:
    """What went wrong with the file, and what can be done."""
    text = str(getattr(error, "strerror", None) or error)
    if "full" in text or "No space" in text or ("I/O" in text and _is_full(path.parent)):
        return StoreError(
            f"{path}: the disk is full. Every answer written so far is safe; make space and give "
            "the same command again to go on."
        )
    damage = ("malformed", "not a database", "disk image", "no such table", "has no column")
    if any(words in text for words in damage):
        return _damaged(path, text)
    if "locked" in text:
        return StoreError(f"{path}: another process has been writing to it for a minute.")
    return StoreError(f"{path}: answers cannot be kept there ({text}).")


def _damaged(path: Path, text: str) -> StoreError:
    return StoreError(
        f"{path}: is damaged or no store of answers ({text}). Move it aside and run again, "
        "or name another file."
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _NO_SPACE
    except OSError:
        return False


# -- how answers are written ------------------------------------------------------------------


def _pack(kind: str, answers: Sequence[Any]) -> bytes:
    """Numbers as they stand in memory, so that they come back exactly; anything else as JSON."""
    if kind == "loglikelihood" and set(map(type, answers)) == {tuple}:
        # Not by zip(*answers): so many iterators would set off the garbage collector.
        values, greedy = [a[0] for a in answers], [a[1] for a in answers]
        if set(map(type, values)) == {float}:
            return b"P" + np.array(values, dtype="<f8").tobytes() + bytes(greedy)
    return b"J" + json.dumps(answers, default=float).encode()


def _unpack(kind: str, packed: bytes) -> list[Any]:
    if packed[:1] == b"P":
        count = (len(packed) - 1) // 9
        values = np.frombuffer(packed, dtype="<f8", count=count, offset=1).tolist()
        greedy = np.frombuffer(packed, dtype=np.uint8, offset=1 + 8 * count).astype(bool).tolist()
        return list(zip(values, greedy, strict=True))
    answers: list[Any] = json.loads(packed[1:])
    return [tuple(a) for a in answers] if kind == "loglikelihood" else answers
