"""Bring what a store has written to the disk itself, beside the thread that writes it.

A second after the first answer that is not there yet: a commit need not wait for the disk, and no
pause of the model leaves an answer where a power cut could take it.
"""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

logger = logging.getLogger(__name__)

#: Seconds after which an answer is on the disk.
SYNC_EVERY = 1.0


class Syncing:
    """Of one store. SQLite has no lock on its log that opening it another time could break."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._log = store.with_name(f"{store.name}-wal")
        self._timer: threading.Timer | None = None
        self._failure: OSError | None = None
        self._gone = False

    def soon(self) -> None:
        """Something was written."""
        if self._timer is None:
            self._timer = threading.Timer(SYNC_EVERY, self._sync)
            self._timer.daemon = True
            self._timer.start()

    def now(self) -> None:
        """Wait for the disk, if anything is waiting for it."""
        if self._timer is not None:
            self._timer.cancel()
            self._sync()

    def check(self) -> None:
        """Say in the writing thread what went wrong beside it."""
        if self._failure is not None:
            raise self._failure

    def _sync(self) -> None:
        self._timer = None  # what is written from here on needs another
        try:
            handle = os.open(self._log, os.O_RDWR)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
        except FileNotFoundError:  # the log is part of the store by now, or both were removed
            if not self._store.exists() and not self._gone:
                self._gone = True
                logger.warning(
                    "%s: was removed while the run is at work. It goes on, but its answers are "
                    "not kept; the results will be written when it ends.",
                    self._store,
                )
        except OSError as error:
            self._failure = error
