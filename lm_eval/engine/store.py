"""The answer store: one SQLite file in WAL (write-ahead log) mode.

Any number of runs, models and processes can share a file. Answers are written in batches, with
one table row per batch: one blob with all keys and one blob with all values. A row is written
completely or not at all, even if the process is killed. Commits do not wait for the disk; the log
is fsynced in the background once a second (`wal_sync.py`), so a power failure loses at most the
last second. It cannot damage the file, because SQLite waits for the disk wherever the order of
writes matters.

When a store is opened, the answers of one model are read into a dictionary. Lookups need no query.
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

from lm_eval.api.instance import Completion
from lm_eval.engine.keys import KEY_SIZE
from lm_eval.engine.wal_sync import WalSyncer
from lm_eval.errors import StoreError

logger = logging.getLogger(__name__)

#: SQLite application id in the file header ("LMev"). It distinguishes stores from other databases.
APPLICATION_ID = 0x4C4D6576
#: Newest version of the file format that can be read, kept in SQLite's `user_version`. A file has
#: version 1 until its first failure is stored, then version 2: older versions of lm_eval would read
#: rows of kind `FAILURE` as answers. It has version 3 from the first answer on that is stored with
#: its reasoning or finish reason (`Completion`).
FORMAT = 3
_FORMAT_OF_FAILURES = 2
#: The kind of the rows that hold the reasons of failed requests.
FAILURE = "failure"
#: The failure reason that marks an answer as discarded: the request is to be sent again.
FORGOTTEN = "asked again"
#: Seconds to wait for another process that is writing.
LOCK_TIMEOUT = 60.0
#: A disk with fewer free bytes counts as full. SQLite reports a full disk in several ways, also as
#: an I/O error.
_FULL_BELOW = 64 * 1024

_SCHEMA = f"""
BEGIN IMMEDIATE;
CREATE TABLE IF NOT EXISTS models (id INTEGER PRIMARY KEY, identity TEXT UNIQUE NOT NULL);
CREATE TABLE IF NOT EXISTS answers (
    model INTEGER NOT NULL, kind TEXT NOT NULL, keys BLOB NOT NULL, answers BLOB NOT NULL
);
CREATE INDEX IF NOT EXISTS answers_of_model ON answers (model);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = 1;
COMMIT;
"""

#: The value that `AnswerStore.find` returns for a key without a stored answer.
MISSING: Any = object()


class AnswerStore:
    """The stored answers of one model; the file may also hold those of other models.

    Use it as a context manager, or call `close`. Opening the file, adding to it and discarding
    answers raise `StoreError` if it cannot be read or written.
    """

    def __init__(self, path: str | Path, identity: str, read_only: bool = False) -> None:
        """Opens the file, creates it if it does not exist, and reads the model's answers.

        A model that is not in the file has no answers. Raises `StoreError` if the file is not a
        store, is damaged, was written by a newer version, or cannot be opened.

        Args:
            path: the SQLite file.
            identity: the text that identifies the model (`models.identity.model_identity`).
            read_only: if True, the file must exist and is not changed.
        """
        self.path = Path(path)
        self._answers: dict[bytes, Any] = {}
        self._failures: dict[bytes, str] = {}
        self._last_row_read = 0
        self.identity = identity
        self._connection = _connect(self.path, read_only)
        self._wal_syncer = WalSyncer(self.path)
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
            raise _store_error(self.path, error) from error
        except StoreError:
            self._connection.close()
            raise

    def __len__(self) -> int:
        """Returns the number of stored answers of this model; failures do not count."""
        return len(self._answers)

    def refresh(self) -> None:
        """Reads the answers that were added since the last call, also by other processes.

        Raises `StoreError` if a row is damaged, and `sqlite3.Error` if the file cannot be read.
        """
        rows = self._connection.execute(
            "SELECT rowid, kind, keys, answers FROM answers WHERE model = ? AND rowid > ?",
            (self._model, self._last_row_read),
        )
        for row, kind, keys, answers in rows:
            self._last_row_read = row
            split = [keys[i : i + KEY_SIZE] for i in range(0, len(keys), KEY_SIZE)]
            try:
                self._remember(kind, split, _unpack(kind, answers))
            except (ValueError, TypeError) as error:
                raise _damaged_error(self.path, f"row {row}: {error}") from error

    def _remember(self, kind: str, keys: Sequence[bytes], values: Sequence[Any]) -> None:
        """Adds one row of answers (or failure reasons) to memory; newer rows replace older ones.

        `kind` is the request type, or `FAILURE` for failure reasons.
        """
        now, before = self._answers, self._failures
        if kind == FAILURE:
            now, before = self._failures, self._answers
        now.update(zip(keys, values, strict=True))
        if before:
            for key in keys:
                before.pop(key, None)

    def find(self, keys: Iterable[bytes | None]) -> list[Any]:
        """Returns the stored answer for each key; `MISSING` if there is none or the key is None."""
        get = self._answers.get
        return [MISSING if key is None else get(key, MISSING) for key in keys]

    def failure(self, key: bytes | None) -> str | None:
        """Returns the reason why a request failed.

        Returns None if it was answered, was discarded (`forget`), was never sent, or if `key` is
        None.
        """
        reason = None if key is None else self._failures.get(key)
        return None if reason == FORGOTTEN else reason

    def add_failures(self, reasons: Mapping[bytes, str]) -> None:
        """Stores the reasons of failed requests, by key; discards their stored answers.

        With no reasons nothing is written.
        """
        if not reasons:
            return
        self._require_format(_FORMAT_OF_FAILURES)
        self.add(FAILURE, list(reasons), list(reasons.values()))

    def add(self, kind: str, keys: Sequence[bytes], answers: Sequence[Any]) -> None:
        """Writes a batch of answers to the requests with these `keys`, completely or not at all.

        They replace earlier answers and failures of the same keys. After the call they survive the
        end of this process, but may not be on the disk yet.

        Args:
            kind: the request type, or `FAILURE` if `answers` are the reasons of failures.
            keys: one key per answer. With no keys nothing is written.
            answers: the answers, in the order of `keys`.
        """
        if not keys:
            return
        if kind == "generate_until" and any(type(answer) is Completion for answer in answers):
            self._require_format(FORMAT)
        try:
            self._wal_syncer.raise_failure()
            with self._connection:
                self._connection.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?)",
                    (self._model, kind, b"".join(keys), _pack(kind, answers)),
                )
        except (OSError, sqlite3.Error) as error:
            raise _store_error(self.path, error) from error
        self._wal_syncer.schedule()
        self._remember(kind, keys, answers)

    def _require_format(self, version: int) -> None:
        """Raises the version of the file to at least `version`."""
        try:
            if self._connection.execute("PRAGMA user_version").fetchone()[0] < version:
                with self._connection:
                    self._connection.execute(f"PRAGMA user_version = {version}")
        except sqlite3.Error as error:
            raise _store_error(self.path, error) from error

    def forget(self, keys: Iterable[bytes | None]) -> None:
        """Discards this model's stored answers and failures of these keys; other keys stay.

        Keys that are None or not in the store are ignored.
        """
        known = [key for key in keys if key in self._answers or key in self._failures]
        self.add_failures({key: FORGOTTEN for key in known if key is not None})

    def close(self) -> None:
        """Closes the file, and waits until an fsync has written all answers to the disk."""
        self._connection.close()  # the last connection to close moves the log into the file
        self._wal_syncer.flush()

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
    """Returns a connection to the checked store; creates file and folders unless `read_only`.

    Raises `StoreError` if that fails, or if the file is not a store of a known format.
    """
    try:
        if read_only:
            return _check_and_prepare(path, _open_read_only(path), read_only)
        path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=LOCK_TIMEOUT, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise _store_error(path, error) from error
    return _check_and_prepare(path, connection, read_only)


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Returns a connection that does not change the store.

    If file and folder are writable, SQLite may create its shared-memory file, which lets readers
    and writers coordinate; SQLite removes it again. If they are not writable, no other process
    writes either, so the file is opened as immutable. If a killed run has left a log (`-wal`), file
    and log are copied to a temporary folder and read into memory.

    Raises `StoreError` if there is no such file.
    """
    if not path.is_file():
        raise StoreError(
            f"{path}: the answer store does not exist. Put the file back, or run the "
            "evaluation again."
        )
    if os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        return _open_uri(path, "rw")
    log = path.with_name(f"{path.name}-wal")
    if not log.is_file() or not log.stat().st_size:
        return _open_uri(path, "ro&immutable=1")
    with tempfile.TemporaryDirectory(prefix="lm_eval_store_") as folder:
        for file in (path, log):
            shutil.copyfile(file, Path(folder, file.name))
        on_disk = _open_uri(Path(folder, path.name), "rw")
        in_memory = sqlite3.connect(":memory:")
        try:
            on_disk.backup(in_memory)
        finally:
            on_disk.close()
    return in_memory


def _open_uri(path: Path, mode: str) -> sqlite3.Connection:
    """Returns a connection that refuses writes.

    `mode` is the parameter `mode` of SQLite's file URIs, such as `rw`; other parameters may follow
    it.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _check_and_prepare(
    path: Path, connection: sqlite3.Connection, read_only: bool
) -> sqlite3.Connection:
    """Returns the connection after checking that the file is a store of a known format.

    Unless `read_only`, switches it to WAL mode and creates the tables of an empty file. On errors
    closes the connection and raises `StoreError`.
    """
    try:
        connection.execute("BEGIN")  # a consistent view: another process may be creating the tables
        empty = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.rollback()
        if not empty and application != APPLICATION_ID:
            raise StoreError(
                f"{path}: this SQLite database is not an answer store. Give another --use_cache or "
                "--output_path."
            )
        if layout > FORMAT:
            raise StoreError(
                f"{path}: the store was written by a newer version of lm_eval (format {layout}; "
                f"this version reads formats up to {FORMAT}). Use that version, or give another "
                "--use_cache or --output_path."
            )
        if read_only:
            return connection
        mode = _enable_wal(connection)
        # Without WAL (some file systems do not support it) each commit must wait for the disk.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        if empty:
            connection.executescript(_SCHEMA)
        return connection
    except sqlite3.Error as error:
        connection.close()
        raise _store_error(path, error) from error
    except StoreError:
        connection.close()
        raise


def _enable_wal(connection: sqlite3.Connection) -> str:
    """Switches to WAL mode; returns the resulting mode, another one if WAL is not supported.

    Retries while another process holds the lock, because SQLite's own timeout does not apply to
    this statement. Raises `sqlite3.OperationalError` after `LOCK_TIMEOUT` seconds, or if the
    statement fails for another reason.
    """
    deadline = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return str(connection.execute("PRAGMA journal_mode = WAL").fetchone()[0])
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def _store_error(path: Path, error: Exception) -> StoreError:
    """Returns a `StoreError` that states what went wrong with the file, and the remedy."""
    text = str(getattr(error, "strerror", None) or error)
    if "full" in text or "No space" in text or ("I/O" in text and _is_full(path.parent)):
        return StoreError(
            f"{path}: the disk is full. All answers stored so far are safe. Free some space and "
            "run the same command again to continue."
        )
    damage = ("malformed", "not a database", "disk image", "no such table", "has no column")
    if any(words in text for words in damage):
        return _damaged_error(path, text)
    if "locked" in text:
        return StoreError(
            f"{path}: the store is locked: another process has been writing to it for more than "
            f"{LOCK_TIMEOUT:g} seconds. Wait for that process to finish, or give another "
            "--use_cache or --output_path."
        )
    return StoreError(
        f"{path}: answers cannot be stored in this file ({text}). Check the path and its "
        "permissions, or give another --use_cache or --output_path."
    )


def _damaged_error(path: Path, text: str) -> StoreError:
    return StoreError(
        f"{path}: the file is damaged or is not an answer store ({text}). Move it away and run "
        "the command again, or give another --use_cache or --output_path."
    )


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BELOW
    except OSError:
        return False


# -- the binary format of answers ------------------------------------------------------------------


def _pack(kind: str, answers: Sequence[Any]) -> bytes:
    """Returns a batch of answers as bytes; `_unpack` restores them exactly.

    `kind` is the request type, or `FAILURE`. Log-likelihood pairs are packed as float64 values
    followed by one byte per greedy flag, all other answers as JSON. The first byte names the
    format: `P` for pairs, `J` for JSON.
    """
    if kind == "loglikelihood" and set(map(type, answers)) == {tuple}:
        # Not zip(*answers): one iterator per answer would trigger garbage collection.
        values, greedy = [a[0] for a in answers], [a[1] for a in answers]
        if set(map(type, values)) == {float}:
            return b"P" + np.array(values, dtype="<f8").tobytes() + bytes(greedy)
    plain = [_with_details(answer) if type(answer) is Completion else answer for answer in answers]
    return b"J" + json.dumps(plain, default=float).encode()


def _with_details(answer: Completion) -> dict[str, str]:
    """Returns an answer with its reasoning and finish reason as JSON data."""
    details = {"reasoning": answer.reasoning, "finish_reason": answer.finish_reason}
    return {"text": str(answer), **{k: v for k, v in details.items() if v is not None}}


def _unpack(kind: str, packed: bytes) -> list[Any]:
    """Returns the answers that `_pack` has packed; `kind` is the same as there.

    Raises `ValueError` or `TypeError` if the bytes are damaged.
    """
    if packed[:1] == b"P":
        count = (len(packed) - 1) // 9
        values = np.frombuffer(packed, dtype="<f8", count=count, offset=1).tolist()
        greedy = np.frombuffer(packed, dtype=np.uint8, offset=1 + 8 * count).astype(bool).tolist()
        return list(zip(values, greedy, strict=True))
    answers: list[Any] = json.loads(packed[1:])
    if kind == "loglikelihood":
        return [tuple(a) for a in answers]
    return [Completion(**a) if type(a) is dict else a for a in answers]
