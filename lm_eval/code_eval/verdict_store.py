"""Stores the verdicts of programs, so that scoring again does not run unchanged programs again.

A verdict is found by a hash of the program, its tests, the limits, the version of the runner and
that of Python. The store is a small SQLite file in the run folder; without a file, verdicts are
kept in memory for one evaluation.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from lm_eval.errors import StoreError
from lm_eval.sandbox import Verdict

logger = logging.getLogger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS verdicts (
    key BLOB PRIMARY KEY, passed INTEGER NOT NULL, outcome TEXT NOT NULL, detail TEXT NOT NULL,
    seconds REAL NOT NULL, isolation TEXT NOT NULL
) WITHOUT ROWID
"""
_COLUMNS = "passed, outcome, detail, seconds, isolation"


@dataclass(frozen=True)
class StoredVerdict:
    """A verdict, and the isolation that was active when the program ran."""

    verdict: Verdict
    isolation: str


class VerdictStore:
    """Verdicts by key, in memory and, if there is a `path`, in a file.

    Use it as a context manager, or call `close`. A file that cannot be written is only read, with a
    warning.
    """

    def __init__(self, path: Path | None = None, fresh: bool = False) -> None:
        """Opens the store; the file is created when the first verdict is added.

        With `fresh`, verdicts that the file already has are not used, but replaced. Raises
        `StoreError` if the file exists and is not a store of verdicts.
        """
        self.path = path
        self._fresh = fresh
        self._memory: dict[bytes, StoredVerdict] = {}
        self._connection: sqlite3.Connection | None = None
        if path is not None and path.is_file():
            self._open(path)

    def _open(self, path: Path) -> sqlite3.Connection | None:
        """Connects to the file and creates its table; None, with a warning, if it is not writable.

        A file that can only be read is still connected to.
        """
        try:
            self._connection = sqlite3.connect(path, timeout=60.0)
            self._connection.execute("PRAGMA synchronous = NORMAL")
            with self._connection:
                self._connection.execute(_SCHEMA)
        except sqlite3.OperationalError as error:
            self._warn(error)
        except sqlite3.DatabaseError as error:
            raise self._unusable(error) from error
        return self._connection

    def get(self, key: bytes) -> StoredVerdict | None:
        """Returns a verdict by its key, or None; raises `StoreError` if the file is damaged."""
        found = self._memory.get(key)
        if found is None and self._connection is not None and not self._fresh:
            query = f"SELECT {_COLUMNS} FROM verdicts WHERE key = ?"
            try:
                row = self._connection.execute(query, (key,)).fetchone()
            except sqlite3.OperationalError:  # a file without the table, which cannot be written
                return None
            except sqlite3.DatabaseError as error:
                raise self._unusable(error) from error
            if row is not None:
                passed, outcome, detail, seconds, isolation = row
                verdict = Verdict(bool(passed), outcome, detail, seconds)
                found = self._memory[key] = StoredVerdict(verdict, isolation)
        return found

    def add(self, verdicts: Iterable[tuple[bytes, StoredVerdict]]) -> None:
        """Stores verdicts by key; those in the file are safe when this returns."""
        added = dict(verdicts)
        self._memory |= added
        if self.path is None:
            return
        connection = self._connection or self._open(self.path)
        if connection is None:
            return
        rows = [
            (key, v.passed, v.outcome, v.detail, v.seconds, one.isolation)
            for key, one in added.items()
            for v in (one.verdict,)
        ]
        try:
            with connection:
                connection.executemany("INSERT OR REPLACE INTO verdicts VALUES (?,?,?,?,?,?)", rows)
        except sqlite3.OperationalError as error:
            self._warn(error)

    def _warn(self, error: sqlite3.Error) -> None:
        logger.warning(
            "%s: the verdicts of programs cannot be stored there (%s), so scoring again will run "
            "the programs again.",
            self.path,
            error,
        )

    def _unusable(self, error: sqlite3.Error) -> StoreError:
        return StoreError(
            f"{self.path}: this is not a store of verdicts, or it is damaged ({error}). Move the "
            "file away; the programs are then run again."
        )

    def close(self) -> None:
        """Closes the file, if it is open."""
        if self._connection is not None:
            with closing(self._connection):
                self._connection = None

    def __enter__(self) -> VerdictStore:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
