"""The runs in a folder and its subfolders, and the pages that show them."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval._version import __version__
from lm_eval.errors import EvalError, OutputError
from lm_eval.report.inputs import Inputs, ReportRun, of_results_file, of_stored_run, with_labels
from lm_eval.report.report import Report, make_report
from lm_eval.report.samples import Selection
from lm_eval.runs.folder import PARTIAL_RESULTS_FILE, RECORD_FILE, RunFolder
from lm_eval.runs.stored import StoredRun
from lm_eval.viewer.progress import RunProgress, model_of

logger = logging.getLogger(__name__)

#: How deep below the folder runs are searched, and how many folders at most.
_DEPTH, _MOST_FOLDERS = 4, 5000
_RESULTS = re.compile(r".+_\d{4}-\d\d-\d\dT[\d.-]+\.json")
#: Seconds between two looks at the folder, and between two questions of a page.
SCAN_SECONDS, POLL_SECONDS = 1.0, 1.0


@dataclass(frozen=True)
class Entry:
    """One run of the folder: recorded in a run folder, or a results file alone."""

    id: str
    place: str
    stored: StoredRun | None = None
    file: Path | None = None

    def load(self) -> ReportRun:
        """Returns the run for a report; raises `OutputError` if its files cannot be read."""
        if self.stored is not None:
            return of_stored_run(self.stored)
        if self.file is None:
            raise OutputError(f"{self.place}: has no results.")
        return of_results_file(self.file)

    @property
    def version(self) -> str:
        """A text that changes whenever the page of this run has something new to show."""
        if self.stored is None:
            return self.id
        record = self.stored.record
        partial = self.stored.folder.path / PARTIAL_RESULTS_FILE
        changed = partial.stat().st_mtime_ns if partial.is_file() and not record.finished else 0
        return f"{self.id} {record.begun} {record.finished} {record.results} {changed}"


class Catalog:
    """The runs below a folder, with their progress and pages.

    Its methods may be called from several threads; pages are made one at a time.
    """

    def __init__(self, root: Path) -> None:
        """Takes the folder; raises `OutputError` if it does not exist."""
        if not root.is_dir():
            raise OutputError(f"{root}: there is no such folder. Check the path.")
        self.root = root.absolute()
        self._lock = threading.RLock()
        self._entries: list[Entry] = []
        self._scanned = 0.0
        self._warned: set[str] = set()
        self._progress: dict[str, tuple[str, RunProgress]] = {}
        self._pages: dict[tuple[str, ...], tuple[str, bytes]] = {}

    def entries(self) -> list[Entry]:
        """Returns the runs, the latest first; the folder is searched at most once a second."""
        with self._lock:
            if time.monotonic() - self._scanned > SCAN_SECONDS or not self._entries:
                self._entries = list(_find(self.root, self._warn))
                self._scanned = time.monotonic()
            return self._entries

    def _warn(self, problem: str) -> None:
        """Logs why runs are left out, once, although the folder is searched every second."""
        if problem not in self._warned:
            self._warned.add(problem)
            logger.warning("Runs are left out. %s", problem)

    def choose(self, ids: Sequence[str]) -> list[Entry] | None:
        """Returns the runs with these ids, in this order; None if one of them does not exist."""
        known = {entry.id: entry for entry in self.entries()}
        return [known[one] for one in ids] if all(one in known for one in ids) else None

    def progress(self, entries: Sequence[Entry]) -> dict[str, Any]:
        """Returns the progress of runs, and a text that changes when there is more to show."""
        with self._lock:
            return {
                "changed": _version(entries),
                "runs": [
                    {"id": entry.id, **self._progress_of(entry).read()}
                    for entry in entries
                    if entry.stored is not None
                ],
            }

    def _progress_of(self, entry: Entry) -> RunProgress:
        """Returns the object that reads a run's progress, a new one if the run began again."""
        version = "" if entry.stored is None else f"{entry.stored.record}"
        known = self._progress.get(entry.id)
        if known is None or known[0] != version:
            assert entry.stored is not None
            known = self._progress[entry.id] = (version, RunProgress(entry.stored))
        return known[1]

    def list_page(self) -> bytes:
        """Returns the page that lists all runs."""
        entries = self.entries()
        with self._lock:
            listed = [self._listed(entry) for entry in entries]
        summary: dict[str, Any] = {
            "title": self.root.name or str(self.root),
            "version": __version__,
            "created": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
            "runs": [],
            "notes": [],
            "table": {"rows": [], "levels": []},
            "differences": None,
            "studies": [],
            "sweeps": [],
            "tasks": [],
            "selection": "",
            "provenance": [],
            "catalog": listed,
            "live": _live("progress", _version(entries), running=False),
        }
        return _bytes(Report(summary))

    def _listed(self, entry: Entry) -> dict[str, Any]:
        """Returns one line of the list of runs."""
        if entry.stored is None:
            return {
                "id": entry.id,
                "place": entry.place,
                "model": entry.place,
                "what": "results file",
                "started": "",
                "state": "finished",
            }
        record = entry.stored.record
        return {
            "id": entry.id,
            "place": entry.place,
            "model": model_of(entry.stored),
            "what": ", ".join(str(one) for one in record.settings.get("tasks") or record.tasks),
            "started": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(record.begun)),
            "state": self._progress_of(entry).state,
        }

    def run_page(self, entries: Sequence[Entry]) -> bytes:
        """Returns the report of runs side by side; the last ones are kept in memory."""
        ids, version = tuple(entry.id for entry in entries), _version(entries)
        with self._lock:
            known = self._pages.get(ids)
            if known is not None and known[0] == version:
                return known[1]
            made = self._make(entries, version)
            self._pages[ids] = (version, made)
            while len(self._pages) > 4:
                del self._pages[next(iter(self._pages))]
            return made

    def _make(self, entries: Sequence[Entry], version: str) -> bytes:
        runs = []
        for entry in entries:
            try:
                runs.append(entry.load())
            except EvalError as error:
                failed = ReportRun(self.root / entry.place, {"results": {}})
                runs.append(replace(failed, notes=[" ".join(str(error).split())]))
        states = [self._progress_of(entry).state for entry in entries if entry.stored]
        running = "running" in states
        inputs = Inputs(with_labels(runs), [])
        report = make_report(inputs, Selection(), score_answers=not running)
        report.summary["live"] = _live("progress", version, running)
        report.summary["home"] = True
        return _bytes(report)


def _live(address: str, version: str, running: bool) -> dict[str, Any]:
    return {
        "progress": address,
        "changed": version,
        "running": running,
        "seconds": POLL_SECONDS,
    }


def _bytes(report: Report) -> bytes:
    return "".join(report.html("'self'")).encode("utf-8", "backslashreplace")


def _version(entries: Sequence[Entry]) -> str:
    text = "\n".join(entry.version for entry in entries)
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]


def _find(root: Path, warn: Callable[[str], None]) -> Iterator[Entry]:
    """Yields the runs below a folder; links to other folders are not followed.

    `warn` is called with each folder that cannot be read, and the reason.
    """
    found: list[tuple[float, Entry]] = []
    for folder in _folders(root, warn):
        place = str(folder.relative_to(root)) if folder != root else folder.name
        recorded: set[str] = set()
        try:
            records = RunFolder(folder).records() if (folder / RECORD_FILE).is_file() else []
        except OutputError as error:
            warn(str(error))
            continue
        except OSError as error:
            warn(f"{folder}: {error.strerror}.")
            continue
        for record in records:
            stored = StoredRun(RunFolder(folder), record)
            recorded.add(str(record.results))
            found.append((record.begun, Entry(_id(place, record.id), place, stored)))
        others = [f for f in _results(folder) if f.name not in recorded] if not records else []
        for file in others:
            name = f"{place}/{file.name}"
            found.append((file.stat().st_mtime, Entry(_id(name, ""), name, None, file)))
    for _, entry in sorted(found, key=lambda one: one[0], reverse=True):
        yield entry


def _results(folder: Path) -> list[Path]:
    """Returns the results files of a folder, without sample logs."""
    return [
        file
        for file in sorted(folder.glob("*.json"))
        if _RESULTS.fullmatch(file.name) and not file.name.startswith("samples_") and file.is_file()
    ]


def _folders(root: Path, warn: Callable[[str], None]) -> Iterator[Path]:
    """Yields a folder and those below it that may contain runs.

    `warn` is called with each one that cannot be listed.
    """

    def report(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):  # deleted since it was found
            warn(f"{error.filename}: {error.strerror}.")

    for count, (name, below, _) in enumerate(os.walk(root, onerror=report)):
        if count >= _MOST_FOLDERS:
            return
        folder = Path(name)
        below[:] = sorted(one for one in below if not one.startswith(".") and one != "node_modules")
        if len(folder.relative_to(root).parts) >= _DEPTH:
            below.clear()
        yield folder


def _id(place: str, run_id: str) -> str:
    text = f"{place}\n{run_id}".encode("utf-8", "backslashreplace")
    return hashlib.sha256(text).hexdigest()[:12]
