"""The answer store: one SQLite file in WAL (write-ahead log) mode.

Any number of runs, models and processes can share a file. Answers are written in batches, with
one table row per batch: one blob with all keys, one with all values and one with all checksums
(`answer_codec.py`). A row is written completely or not at all, even if the process is killed.
Commits do not wait for the disk; the log is fsynced in the background once a second
(`wal_sync.py`), so a power failure loses at most the last second. It cannot damage the file,
because SQLite waits for the disk wherever the order of writes matters.

When a store is opened, the whole file is checked, and the answers of one model are read into a
dictionary. Lookups need no query. Damaged answers are reported and left out, so that they are asked
again; the rest of a damaged file is kept (`store_repair.py`).
"""

from __future__ import annotations

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

from lm_eval.engine.answer_codec import FAILURE, Batch, pack, unpack, unpack_unchecked
from lm_eval.engine.gc_pause import gc_paused
from lm_eval.engine.store_repair import (
    copy_readable,
    full_size,
    replace_damaged,
    structural_damage,
)
from lm_eval.engine.store_schema import (
    APPLICATION_ID,
    FORMAT,
    Schema,
    StoreConnection,
    create_tables,
)
from lm_eval.engine.wal_sync import WalSyncer
from lm_eval.errors import StoreError

logger = logging.getLogger(__name__)

#: The failure reason that marks an answer as discarded: the request is to be sent again.
FORGOTTEN = "asked again"
#: Seconds to wait for another process that is writing.
LOCK_TIMEOUT = 60.0
#: A disk with fewer free bytes counts as full. SQLite reports a full disk in several ways, also as
#: an I/O error.
_FULL_BELOW = 64 * 1024

#: How many answers are written at a time when stores are merged.
_MERGED_AT_ONCE = 50_000

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
        self._read_only = read_only
        self._open()

    def _open(self) -> None:
        """Opens the file and reads the model's answers; see `__init__`."""
        self._connection = _connect(self.path, self._read_only)
        self._wal_syncer = WalSyncer(self.path)
        try:
            self._model = self._find_model()
            with gc_paused():
                self._read_unchecked()
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

    def _find_model(self) -> int:
        """Returns the number of this model in the file; adds it unless the file is read only.

        A damaged identity is recognized by the checksums of its answers, and replaced. Returns -1
        if the model has no answers and cannot be added.
        """
        select = "SELECT id FROM models WHERE identity = ?"
        found = self._connection.execute(select, (self.identity,)).fetchone()
        if found:
            return int(found[0])
        first = "SELECT model, min(rowid), kind, keys, answers, checksums FROM answers"
        rows = []
        if Schema.of(self._connection).checked:
            rows = self._connection.execute(f"{first} GROUP BY model").fetchall()
        for model, _, *columns in rows:
            if unpack(self.identity, *columns).keys:
                logger.warning(
                    "%s: the file is damaged: it has lost the name of the model %d, whose answers "
                    "are those of this run.",
                    self.path,
                    model,
                )
                if not self._read_only:
                    with self._connection:
                        insert = "INSERT OR REPLACE INTO models VALUES (?, ?)"
                        self._connection.execute(insert, (model, self.identity))
                return int(model)
        if self._read_only:
            return -1
        with self._connection:
            insert = "INSERT OR IGNORE INTO models (identity) VALUES (?)"
            self._connection.execute(insert, (self.identity,))
        return int(self._connection.execute(select, (self.identity,)).fetchone()[0])

    def refresh(self) -> None:
        """Reads the answers that were added since the last call, also by other processes.

        Damaged answers are left out and reported in one warning. Unless the file is read only,
        they are removed from it. Raises `sqlite3.Error` if the file cannot be read.
        """
        if not Schema.of(self._connection).checked:
            return  # a file of an older format that is only read
        rows = self._connection.execute(
            "SELECT rowid, kind, keys, answers, checksums FROM answers "
            "WHERE model = ? AND rowid > ?",
            (self._model, self._last_row_read),
        )
        damaged: dict[int, Batch] = {}
        for row, *columns in rows:
            self._last_row_read = row
            found = unpack(self.identity, *columns)
            self._remember(found.kind, found.keys, found.answers)
            if found.damaged:
                damaged[row] = found
        if damaged:
            self._warn_of_damage(damaged)
            if not self._read_only:
                with self._connection:
                    for row, found in damaged.items():
                        packed = pack(self.identity, found.kind, found.keys, found.answers)
                        self._connection.execute(
                            "UPDATE answers SET kind = ?, keys = ?, answers = ?, checksums = ? "
                            "WHERE rowid = ?",
                            (found.kind, *packed, row),
                        )

    def _read_unchecked(self) -> None:
        """Reads the answers that an older version has stored, which have no checksums."""
        table = Schema.of(self._connection).unchecked
        if table is None:
            return
        rows = self._connection.execute(
            f"SELECT rowid, kind, keys, answers FROM {table} WHERE model = ? ORDER BY rowid",
            (self._model,),
        )
        damaged: dict[int, Batch] = {}
        for row, *columns in rows:
            found = unpack_unchecked(*columns)
            self._remember(found.kind, found.keys, found.answers)
            if found.damaged:
                damaged[row] = found
        if damaged:
            self._warn_of_damage(damaged)

    def _warn_of_damage(self, rows: Mapping[int, Batch]) -> None:
        """Logs how many answers of which rows are damaged."""
        count = sum(found.damaged for found in rows.values())
        listed = ", ".join(map(str, [*rows][:5])) + (" …" if len(rows) > 5 else "")
        logger.warning(
            "%s: the file is damaged: %d of its stored answers (in row %s) are not what was "
            "written. They are not used; a run asks the model for them again. Check the disk.",
            self.path,
            count,
            listed,
        )

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
        if reasons:
            self.add(FAILURE, list(reasons), list(reasons.values()))

    def add(self, kind: str, keys: Sequence[bytes], answers: Sequence[Any]) -> None:
        """Writes a batch of answers to the requests with these `keys`, completely or not at all.

        They replace earlier answers and failures of the same keys. After the call they survive the
        end of this process, but may not be on the disk yet. If the file was removed meanwhile, it
        is created again with all answers of this model.

        Args:
            kind: the request type, or `FAILURE` if `answers` are the reasons of failures.
            keys: one key per answer. With no keys nothing is written.
            answers: the answers, in the order of `keys`.
        """
        if not keys:
            return
        if self._wal_syncer.store_is_gone():
            self._restore()
        self._insert(kind, keys, answers)
        self._remember(kind, keys, answers)

    def _insert(self, kind: str, keys: Sequence[bytes], answers: Sequence[Any]) -> None:
        try:
            self._wal_syncer.raise_failure()
            with self._connection:
                self._connection.execute(
                    "INSERT INTO answers VALUES (?, ?, ?, ?, ?)",
                    (self._model, kind, *pack(self.identity, kind, keys, answers)),
                )
        except (OSError, sqlite3.Error) as error:
            raise _store_error(self.path, error) from error
        self._wal_syncer.schedule()

    def _restore(self) -> None:
        """Creates the file again after it was removed, with all answers that were in it or given.

        Raises `StoreError` if it cannot be created.
        """
        logger.warning(
            "%s: the answer store was removed during the run. It is created again, with all %d "
            "answers of this model.",
            self.path,
            len(self._answers),
        )
        self._wal_syncer.flush()
        self._connection.close()
        answers, failures = self._answers, self._failures
        self._answers, self._failures, self._last_row_read = {}, {}, 0
        self._open()
        by_kind: dict[str, list[bytes]] = {}
        for key, value in answers.items():
            by_kind.setdefault(_kind_of(value), []).append(key)
        for kind, keys in by_kind.items():
            self._insert(kind, keys, [answers[key] for key in keys])
        if failures:
            self._insert(FAILURE, list(failures), list(failures.values()))
        self._answers, self._failures = {**self._answers, **answers}, failures

    def forget(self, keys: Iterable[bytes | None]) -> None:
        """Discards this model's stored answers and failures of these keys; other keys stay.

        Keys that are None or not in the store are ignored.
        """
        known = [key for key in keys if key in self._answers or key in self._failures]
        self.add_failures({key: FORGOTTEN for key in known if key is not None})

    def merge(self, other: AnswerStore) -> list[bytes]:
        """Adds the answers of another store of the same model, and the reasons of its failures.

        Returns the keys of answers that are different here; nothing is added then. A failure is
        added only if its request has no answer here.
        """
        mine, theirs = self._answers, other._answers
        different = [key for key, value in theirs.items() if mine.get(key, value) != value]
        if different:
            return different
        by_kind: dict[str, list[bytes]] = {}
        for key, value in theirs.items():
            if key not in mine:
                by_kind.setdefault(_kind_of(value), []).append(key)
        for kind, keys in by_kind.items():
            for start in range(0, len(keys), _MERGED_AT_ONCE):
                part = keys[start : start + _MERGED_AT_ONCE]
                self.add(kind, part, [theirs[key] for key in part])
        new = {key: why for key, why in other._failures.items() if key not in mine}
        self.add_failures({key: why for key, why in new.items() if key not in self._failures})
        return []

    def close(self) -> None:
        """Closes the file, and waits until an fsync has written all answers to the disk.

        If the file was removed since it was opened, it is created again with all answers.
        """
        if not self._read_only and self._answers and self._wal_syncer.store_is_gone():
            self._restore()
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


def models_in(path: Path) -> list[str]:
    """Returns the identities of the models whose answers are in a store.

    Raises `StoreError` if the file is not a store or cannot be read.
    """
    connection = _connect(path, read_only=True)
    try:
        return [row[0] for row in connection.execute("SELECT identity FROM models ORDER BY id")]
    except sqlite3.Error as error:
        raise _store_error(path, error) from error
    finally:
        connection.close()


def _connect(path: Path, read_only: bool) -> sqlite3.Connection:
    """Returns a connection to the checked store; creates file and folders unless `read_only`.

    Raises `StoreError` if that fails, or if the file is not a store of a known format.
    """
    try:
        if read_only:
            return _check_and_prepare(path, _open_read_only(path), read_only)
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and not path.is_file() and not path.is_dir():
            raise StoreError(  # opening a pipe would block
                f"{path}: not a regular file, so answers cannot be stored in it. Remove it, or "
                "give another --use_cache or --output_path."
            )
        if (size := full_size(path)) is not None:
            os.truncate(path, size)  # SQLite reads a file without its end only if it is padded
        connection = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT, check_same_thread=False, factory=StoreConnection
        )
    except StoreError:
        raise
    except (OSError, sqlite3.Error) as error:
        raise _store_error(path, error) from error
    return _check_and_prepare(path, connection, read_only)


def _open_read_only(path: Path) -> sqlite3.Connection:
    """Returns a connection that does not change the store.

    If file and folder are writable, SQLite may create its shared-memory file, which lets readers
    and writers coordinate; SQLite removes it again. If they are not writable, no other process
    writes either, so the file is opened as immutable. If a killed run has left a log (`-wal`), file
    and log are copied to a temporary folder and read into memory, as is a file without its end.

    Raises `StoreError` if there is no such file.
    """
    if not path.is_file():
        raise StoreError(
            f"{path}: the answer store does not exist. Put the file back, or run the "
            "evaluation again."
        )
    log = path.with_name(f"{path.name}-wal")
    has_log = log.is_file() and log.stat().st_size > 0
    size = full_size(path)
    if size is None and os.access(path.parent, os.W_OK) and os.access(path, os.W_OK):
        return _open_uri(path, "rw")
    if size is None and not has_log:
        return _open_uri(path, "ro&immutable=1")
    with tempfile.TemporaryDirectory(prefix="lm_eval_store_") as folder:
        copy = Path(folder, path.name)
        shutil.copyfile(path, copy)
        if size is not None:
            os.truncate(copy, size)
        if has_log:
            shutil.copyfile(log, Path(folder, log.name))
        on_disk = _open_uri(copy, "rw")
        in_memory = sqlite3.connect(":memory:", factory=StoreConnection)
        try:
            on_disk.backup(in_memory)
        except BaseException:
            in_memory.close()
            raise
        finally:
            on_disk.close()
    return in_memory


def _open_uri(path: Path, mode: str) -> sqlite3.Connection:
    """Returns a connection that refuses writes.

    `mode` is the parameter `mode` of SQLite's file URIs, such as `rw`; other parameters may follow
    it.
    """
    uri = f"{path.absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=LOCK_TIMEOUT, factory=StoreConnection)
    connection.execute("PRAGMA query_only = 1")
    return connection


def _check_and_prepare(
    path: Path, connection: sqlite3.Connection, read_only: bool
) -> sqlite3.Connection:
    """Returns the connection after checking that the file is a sound store of a known format.

    Unless `read_only`, switches it to WAL mode and creates the tables that it lacks. Of a damaged
    file, the connection has what can be read: a copy in memory if `read_only`, and else a new file
    in its place. On errors closes the connection and raises `StoreError`.
    """
    try:
        connection.execute("BEGIN")  # a consistent view: another process may be creating the tables
        schema = Schema.of(connection)
        application = connection.execute("PRAGMA application_id").fetchone()[0]
        layout = connection.execute("PRAGMA user_version").fetchone()[0]
        connection.rollback()
        if not schema.empty and application != APPLICATION_ID:
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
        if not schema.empty and (damage := structural_damage(connection)) is not None:
            connection = _rescued(path, connection, read_only, damage)
            schema = Schema.of(connection)
        if not schema.empty and not (schema.checked or schema.unchecked):
            raise _damaged_error(path, "it has no answers")
        if read_only:
            return connection
        mode = _enable_wal(connection)
        # Without WAL (some file systems do not support it) each commit must wait for the disk.
        connection.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
        if not schema.checked or layout < FORMAT:
            create_tables(connection)
        return connection
    except (OSError, sqlite3.Error) as error:
        connection.close()
        raise _store_error(path, error) from error
    except StoreError:
        connection.close()
        raise


def _rescued(
    path: Path, connection: sqlite3.Connection, read_only: bool, damage: str
) -> sqlite3.Connection:
    """Returns a connection to what can be read of a damaged store, and logs a warning.

    Closes `connection`. Raises `OSError` or `sqlite3.Error` if nothing can be read.
    """
    if read_only:
        rescued = sqlite3.connect(":memory:", factory=StoreConnection)
        try:
            count = copy_readable(connection, rescued, path.stat().st_size)
        except BaseException:
            rescued.close()
            raise
        finally:
            connection.close()
        where = "They are used as they are; `lm-eval resume` asks for the others again."
    else:
        kept, count = replace_damaged(path, connection)
        rescued = sqlite3.connect(
            path, timeout=LOCK_TIMEOUT, check_same_thread=False, factory=StoreConnection
        )
        where = f"They were copied to a new file, and the damaged one is kept as {kept.name}."
    logger.warning(
        "%s: the file is damaged (%s). %d of its answers can be read. %s Answers that are missing "
        "are asked again. Check the disk.",
        path,
        damage,
        count,
        where,
    )
    return rescued


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


def _kind_of(answer: Any) -> str:
    """Returns the request type that a stored answer belongs to."""
    kinds = {tuple: "loglikelihood", float: "loglikelihood_rolling"}
    return kinds.get(type(answer), "generate_until")


def _is_full(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _FULL_BELOW
    except OSError:
        return False
