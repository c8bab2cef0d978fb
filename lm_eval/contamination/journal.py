"""The journal of a scan: the results of finished shards, so that a killed scan can be resumed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
from pathlib import Path
from typing import Any

from lm_eval.contamination.shard_scan import ShardResult
from lm_eval.errors import OutputError

logger = logging.getLogger(__name__)

#: Changes when results of an older version cannot be used.
_VERSION = 1
#: Seconds between two calls of fsync. A killed process loses nothing in between.
_SYNC_INTERVAL = 1.0


def partial_folder(output: Path) -> Path:
    """Returns the folder beside the findings in which a scan keeps its journal."""
    return output.with_name(f"{output.name}.partial")


class Journal:
    """An open journal. `results` are those of the shards that earlier processes finished."""

    def __init__(self, output: Path, identity: dict[str, Any]) -> None:
        """Opens the journal of the scan that writes to `output`, or begins it.

        `identity` is what must be the same for results to be used: what is searched for, and how
        the corpus is read. Raises `OutputError` if the journal belongs to another scan, if another
        process uses it, or if it cannot be written.
        """
        self.folder = partial_folder(output)
        self._output = output
        self._synced = time.monotonic()
        self.results: dict[str, ShardResult] = {}
        try:
            self.folder.mkdir(exist_ok=True)
            self._file = (self.folder / "journal.jsonl").open("ab+")
        except OSError as error:
            raise OutputError(
                f"the findings cannot be written to {output}: {error.strerror or error}."
            ) from error
        try:
            self._lock()
            self._read({"version": _VERSION, **identity})
        except BaseException:
            self._file.close()
            raise

    def _lock(self) -> None:
        try:
            import fcntl
        except ImportError:  # not available on Windows
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise OutputError(
                f"{self._output}: another process is scanning for these findings. Wait until it "
                "ends, or give another --output."
            ) from error

    def _read(self, identity: dict[str, Any]) -> None:
        """Fills `results`; removes the first line that is incomplete and all after it.

        Writes `identity` to an empty file. Raises `OutputError` if the file has another one.
        """
        self._file.seek(0)
        size = 0
        for number, line in enumerate(self._file):
            try:
                values = json.loads(line) if line.endswith(b"\n") else None
                if number and values is not None:
                    self.results[values["shard"]] = ShardResult.from_json(values["result"])
            except (ValueError, KeyError, TypeError):
                values = None
            if values is None:
                logger.warning(
                    "%s: an entry was not written completely; its part of the corpus is scanned "
                    "again.",
                    self.folder,
                )
                break
            if not number and values != identity:
                what = [name for name in identity if values.get(name) != identity[name]]
                raise OutputError(
                    f"{self.folder}: this is an unfinished scan with other settings "
                    f"({', '.join(what)}). Run the command that began it to finish it, give "
                    "another --output, or pass --fresh to discard it."
                )
            size += len(line)
        self._file.truncate(size)
        if not size:
            self._write(identity)

    def add(self, key: str, result: ShardResult) -> None:
        """Stores the result of a shard."""
        self._write({"shard": key, "result": result.to_json()})

    def _write(self, values: dict[str, Any]) -> None:
        self._file.write(json.dumps(values).encode() + b"\n")
        self._file.flush()
        if time.monotonic() - self._synced > _SYNC_INTERVAL:
            os.fsync(self._file.fileno())
            self._synced = time.monotonic()

    def close(self) -> None:
        """Closes the journal; it can be opened again to resume the scan."""
        os.fsync(self._file.fileno())
        self._file.close()

    def remove(self) -> None:
        """Closes and deletes the journal, when the findings are written."""
        self._file.close()
        shutil.rmtree(self.folder)


def discard(output: Path) -> None:
    """Deletes the findings and the journal at `output`, if there are any."""
    output.unlink(missing_ok=True)
    if partial_folder(output).is_dir():
        shutil.rmtree(partial_folder(output))
