"""The journal of a scan: the results of finished shards, so that a killed scan can be resumed."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm_eval.contamination.shard_scan import ShardResult
from lm_eval.errors import OutputError

logger = logging.getLogger(__name__)

#: Changes when results of an older version cannot be used.
_VERSION = 1
#: Seconds between two calls of fsync. A killed process loses nothing in between.
_SYNC_INTERVAL = 1.0
#: The beginning of the names of folders for the files of an index.
_INDEX = "index-"


def partial_folder(output: Path) -> Path:
    """Returns the folder beside the findings in which a scan keeps its journal."""
    return output.with_name(f"{output.name}.partial")


def check_output(output: Path) -> None:
    """Raises `OutputError` if findings cannot be written to `output`: it or its folder is wrong."""
    if not output.name or output.is_dir():
        raise OutputError(f"--output must be a file, and {output} is a folder.")
    if not output.parent.is_dir():
        raise OutputError(
            f"the findings cannot be written to {output}: there is no folder {output.parent}. "
            "Create it, or give another --output."
        )
    partial = partial_folder(output)
    if partial.exists() and not partial.is_dir():
        raise OutputError(
            f"{partial} is a file, but the scan needs a folder of this name. Move it, or give "
            "another --output."
        )


class Journal:
    """An open journal. Call `begin`, read the `results` of earlier processes, `add` others."""

    def __init__(self, output: Path) -> None:
        """Opens the journal of the scan that writes to `output`.

        Raises `OutputError` if another process uses it, or if it cannot be written.
        """
        self.folder = partial_folder(output)
        self._output = output
        self._synced = time.monotonic()
        try:
            self.folder.mkdir(exist_ok=True)
            self._file = (self.folder / "journal.jsonl").open("ab+")
        except OSError as error:
            raise OutputError(
                f"the findings cannot be written to {output}: {error.strerror or error}."
            ) from error
        try:
            self._lock()
        except BaseException:
            self._file.close()
            raise
        for old in self.folder.glob(f"{_INDEX}*"):  # of a scan that was killed
            shutil.rmtree(old)
        # A process that outlives a killed scan may still write to the old folder.
        self.index_folder = Path(tempfile.mkdtemp(dir=self.folder, prefix=_INDEX))

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

    def begin(self, identity: dict[str, Any]) -> None:
        """Begins the journal, or checks that it belongs to the same scan.

        `identity` is what must be the same for results to be used: what is searched for, and how
        the corpus is read. Raises `OutputError` if it is not.
        """
        identity = {"version": _VERSION, **identity}
        self._file.seek(0)
        line = self._file.readline()
        values = _object(line)
        if values is None:
            if line:
                logger.warning("%s: the journal is damaged, so the scan begins anew.", self.folder)
            self._file.truncate(0)
            self._write(identity)
        elif values != identity:
            what = [name for name in identity if values.get(name) != identity[name]]
            raise OutputError(
                f"{self.folder}: this is an unfinished scan with other settings "
                f"({', '.join(what)}). Run the command that began it to finish it, give "
                "another --output, or pass --fresh to discard it."
            )

    def results(self) -> Iterator[tuple[str, ShardResult]]:
        """Yields the keys and results of the shards that earlier processes finished.

        Removes an entry that was not written completely, and what follows it.
        """
        self._file.seek(0)
        size = len(self._file.readline())
        while line := self._file.readline():
            values = _object(line)
            try:
                if values is None:
                    raise ValueError
                found = str(values["shard"]), ShardResult.from_json(values["result"])
            except (ValueError, KeyError, TypeError):
                logger.warning("%s: an incomplete entry is ignored.", self.folder)
                break
            yield found
            size += len(line)
        self._file.truncate(size)

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
        """Closes the journal; it can be opened again to resume the scan.

        Deletes the index, and the whole folder if the scan did not begin.
        """
        os.fsync(self._file.fileno())
        is_empty = not os.fstat(self._file.fileno()).st_size
        self._file.close()
        shutil.rmtree(self.folder if is_empty else self.index_folder, ignore_errors=True)

    def remove(self) -> None:
        """Closes and deletes the journal, when the findings are written."""
        self._file.close()
        shutil.rmtree(self.folder)


def _object(line: bytes) -> dict[str, Any] | None:
    """Returns the JSON object in a complete line; None if it is something else."""
    try:
        values = json.loads(line) if line.endswith(b"\n") else None
    except (ValueError, RecursionError):
        return None
    return values if isinstance(values, dict) else None


def discard(output: Path) -> None:
    """Deletes the findings and the journal at `output`, if there are any."""
    try:
        output.unlink(missing_ok=True)
        if partial_folder(output).is_dir():
            shutil.rmtree(partial_folder(output))
    except OSError as error:
        raise OutputError(f"{output} cannot be deleted: {error.strerror or error}.") from error
