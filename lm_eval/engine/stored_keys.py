"""Reads which requests a store has answers to, while another process may be writing to it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from lm_eval.engine.answer_codec import FAILURE
from lm_eval.engine.keys import KEY_SIZE


class StoredKeys:
    """The keys of the requests of one model that a store has answers to.

    The file is opened read-only for each `refresh` and closed again. In SQLite's WAL mode, readers
    never make a writer wait, and a read-only connection writes nothing when it is closed. Answers
    are not read, so that damaged ones count.

    Attributes:
        keys: the keys that were found so far.
    """

    def __init__(self, path: Path, identity: str) -> None:
        """Takes the file and the identity of the model; reads nothing yet."""
        self.keys: set[bytes] = set()
        self._path, self._identity = path, identity
        self._last_row = 0

    def refresh(self) -> bool:
        """Reads the keys that were added since the last call; returns whether there were any.

        A file that does not exist or cannot be read at this moment has no new keys.
        """
        log = self._path.with_name(f"{self._path.name}-wal")
        try:
            # Without a log the file is complete, and needs no shared memory to be read.
            mode = "ro" if log.is_file() and log.stat().st_size else "ro&immutable=1"
            uri = f"{self._path.absolute().as_uri()}?mode={mode}"
            with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
                rows = connection.execute(
                    "SELECT answers.rowid, kind, keys FROM answers JOIN models "
                    "ON models.id = answers.model WHERE identity = ? AND answers.rowid > ? "
                    "ORDER BY answers.rowid",
                    (self._identity, self._last_row),
                ).fetchall()
        except (OSError, sqlite3.Error):
            return False
        for row, kind, joined in rows:
            self._last_row = row
            if not isinstance(joined, bytes):
                continue
            found = {joined[i : i + KEY_SIZE] for i in range(0, len(joined), KEY_SIZE)}
            if kind == FAILURE:  # also marks answers that are to be asked again
                self.keys -= found
            else:
                self.keys |= found
        return bool(rows)
