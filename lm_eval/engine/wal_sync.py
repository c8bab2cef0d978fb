"""Fsyncs the write-ahead log (WAL) of a store in the background.

The log is fsynced one second after the first write that is not on the disk yet. So commits need not
wait for the disk, and answers are safe from a power failure after a second, even if the model does
not produce any more.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

#: Seconds after a write until it is fsynced.
SYNC_EVERY = 1.0


class WalSyncer:
    """Fsyncs one store's WAL in the background.

    Opening the WAL a second time is safe: SQLite holds no POSIX lock on it that closing the file
    would release.
    """

    def __init__(self, store: Path) -> None:
        self._store = store
        self._log = store.with_name(f"{store.name}-wal")
        self._timer: threading.Timer | None = None
        self._failure: OSError | None = None
        self._inode = _inode(store)

    def schedule(self) -> None:
        """Schedules an fsync in `SYNC_EVERY` seconds, if none is scheduled. Call after a write."""
        if self._timer is None:
            self._timer = threading.Timer(SYNC_EVERY, self._sync)
            self._timer.daemon = True
            self._timer.start()

    def flush(self) -> None:
        """Fsyncs now and waits for it, if an fsync is scheduled.

        An error is not raised here, but by `raise_failure`.
        """
        if self._timer is not None:
            self._timer.cancel()
            self._sync()

    def raise_failure(self) -> None:
        """Raises the `OSError` of a failed background fsync in the calling thread, if any."""
        if self._failure is not None:
            raise self._failure

    def store_is_gone(self) -> bool:
        """Returns whether the file was removed or replaced since this object was created."""
        return self._inode is not None and _inode(self._store) != self._inode

    def _sync(self) -> None:
        self._timer = None  # first, because writes from here on need another fsync
        try:
            handle = os.open(self._log, os.O_RDWR)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except FileNotFoundError:  # SQLite has moved the log into the store, or both were removed
            pass
        except OSError as error:
            self._failure = error


def _inode(path: Path) -> int | None:
    """Returns the number of a file in its file system; None if there is no such file."""
    try:
        return path.stat().st_ino
    except OSError:
        return None
