"""The folder on disk that holds one model's runs: their records, answers and results.

`run.json` contains one record per run (`runs/record.py`) with everything that `lm-eval resume`
needs. `answers.sqlite` is the answer store that all runs of the folder share.
`answer_index_<id>.npz` maps the answers of one run to its documents. `verdicts.sqlite` holds the
verdicts of programs in these answers, if tasks run them.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import struct
import time
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval.errors import OutputError
from lm_eval.redaction import known_redactor
from lm_eval.results.files import atomic_file, write_atomically
from lm_eval.results.names import file_name
from lm_eval.results.run_signature import run_signature
from lm_eval.results.serialize import handle_non_serializable
from lm_eval.runs.record import RunRecord, changes

logger = logging.getLogger(__name__)

#: The file with the records of all runs of a folder.
RECORD_FILE = "run.json"
ANSWERS_FILE = "answers.sqlite"
VERDICTS_FILE = "verdicts.sqlite"
LOCK_FILE = "run.lock"
PARTIAL_RESULTS_FILE = "results_partial.json"
#: Version of the format of `run.json`. In version 1 it contained a single run, whose answer index
#: was `plan.npz`.
FORMAT = 2
_FORMAT_1_INDEX = "plan.npz"
#: The key in an answer index file under which the id of its run is stored.
_RUN_ID_KEY = "run id"

#: The columns of each task's answer index (`engine.answer_index.build_answer_index`), by task name.
AnswerIndex = Mapping[str, Mapping[str, "np.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class RunFolder:
    """The folder of one model's runs below one output path. It may not exist yet."""

    path: Path

    @classmethod
    def of(cls, output_path: str | Path, model_name: str) -> RunFolder:
        """Returns the folder of a model's runs below `output_path`; creates nothing.

        It is `<output_path>/<model name>`, with the name as `file_name` returns it. For an output
        path that ends in `.json`, such as `x.json`, it is `x.run` beside that file, for any model.
        """
        path = Path(output_path)
        if path.suffix == ".json":
            return cls(path.with_suffix(".run"))
        return cls(path / file_name(model_name))

    @classmethod
    def all_in(cls, root: Path) -> list[RunFolder]:
        """Returns the run folders among `root` and its direct subfolders: those with a `run.json`.

        `root` comes first, then the subfolders by name. Empty if `root` is not a folder. Raises
        `OutputError` without permission to read it.
        """
        try:
            found = [root, *sorted(p for p in root.iterdir() if p.is_dir())]
            return [cls(folder) for folder in found if (folder / RECORD_FILE).is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError as error:
            raise OutputError(
                f"{error.filename}: the folder cannot be read ({error.strerror}). Check its "
                "permissions."
            ) from error

    @property
    def answers(self) -> Path:
        """Path of the folder's own answer store, `answers.sqlite`."""
        return self.path / ANSWERS_FILE

    @property
    def verdicts(self) -> Path:
        """Path of the store with the verdicts of programs, `verdicts.sqlite`; it may not exist."""
        return self.path / VERDICTS_FILE

    def store(self, use_cache: str | None) -> Path:
        """Returns the path of a run's store: that of `use_cache`, or the folder's own if None.

        `use_cache` names a file or a folder (`shared_store`).
        """
        return self.answers if use_cache is None else shared_store(use_cache)

    def output_path(self, model_name: str) -> Path:
        """Returns the `output_path` that leads to this folder now; it may have been moved.

        That is the parent folder, or `x.json` for a folder `x.run`. Raises `OutputError` if the
        folder was renamed, so that no output path leads to it.
        """
        for path in (self.path.parent, self.path.with_suffix(".json")):
            if RunFolder.of(path, model_name).path == self.path:
                return path
        expected = RunFolder.of(self.path.parent, model_name).path.name
        raise OutputError(
            f"{self.path}: the folder was renamed after the run was started. Rename it back to "
            f"{expected}."
        )

    def records(self) -> list[RunRecord]:
        """Returns the records of this folder's runs, in the order in which they were last started.

        Empty if there is no `run.json`. Of several records of the same run, which earlier versions
        may have written, only the latest is returned. Raises `OutputError` if the file cannot be
        read, is not a complete record, or was written in a newer format.
        """
        file = self.path / RECORD_FILE
        if not file.is_file():
            return []
        try:
            content: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise OutputError(
                f"{file}: cannot be read as the record of a run ({error}). Move the file away and "
                "run the original command again; it continues from the answers in "
                f"{ANSWERS_FILE}."
            ) from error
        layout: Any = content.get("format") if isinstance(content, dict) else None
        if layout not in range(1, FORMAT + 1):
            raise OutputError(
                f"{file}: this is not the record of a run, or it was written by a newer version of "
                "lm_eval. Give another --output_path, or move the file away."
            )
        runs = content.get("runs") if layout > 1 else [{"answer_index": _FORMAT_1_INDEX, **content}]
        # Anything but a list is read as one broken record, which `read` reports.
        found = [RunRecord.read(run, file) for run in (runs if isinstance(runs, list) else [runs])]
        latest = {run.id: run for run in sorted(found, key=lambda run: run.begun)}
        return sorted(latest.values(), key=lambda run: run.begun)

    def _write_record(self, record: RunRecord) -> None:
        """Adds a record to `run.json`, replacing the earlier one of the same run.

        Secrets in the records of earlier versions are removed.
        """
        others = [other.without_secrets() for other in self.records() if other.id != record.id]
        runs = [*others, record.without_secrets()]
        self._write(RECORD_FILE, {"format": FORMAT, "runs": [run.to_json() for run in runs]})

    def write_records(self, records: Sequence[RunRecord]) -> None:
        """Writes `run.json` with these records, in place of all others."""
        runs = [record.without_secrets().to_json() for record in records]
        self._write(RECORD_FILE, {"format": FORMAT, "runs": runs})

    def _write(self, name: str, content: Mapping[str, Any]) -> None:
        """Writes `content` as JSON to the file `name`, completely or not at all.

        Creates the folder if necessary. Known secrets are hidden. Raises `OutputError` if writing
        fails.
        """
        text = json.dumps(content, indent=2, default=handle_non_serializable, ensure_ascii=False)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / name, [known_redactor().text(text)])
        except OSError as error:
            raise self._recording_error(error) from error

    def _recording_error(self, error: OSError) -> OutputError:
        full = error.errno == errno.ENOSPC
        remedy = (
            "Free some space and run the same command again to continue."
            if full
            else "Check its permissions, or give another --output_path."
        )
        return OutputError(
            f"{self.path}: the run cannot be recorded in this folder "
            f"({error.strerror or error}). {remedy}"
        )

    def begin(
        self,
        settings: Mapping[str, Any],
        state: Mapping[str, Any],
        index: AnswerIndex,
        model_object: bool = False,
    ) -> RunRecord:
        """Writes a run's record and answer index before its first request; returns the record.

        If the run was started before, its record is replaced, and a warning is logged for every
        change of the model, a task's configuration, its data or its prompts. For a new run, only a
        change of the model since the last other run of the folder is logged. Raises `OutputError`
        if the files cannot be written.

        Args:
            settings: what `RunConfig.settings` returned. Secrets in them are not written.
            state: the `state` of the `RunRecord`.
            index: the answer index of every task.
            model_object: whether the model was passed as a Python object.
        """
        record = RunRecord(
            dict(settings), dict(state), time.time(), str(Path.cwd()), model_object=model_object
        ).without_secrets()
        record = dataclasses.replace(
            record, signature=run_signature(record.settings, record.directory)
        )
        earlier = self.records()
        before = next((run.state for run in earlier if run.id == record.id), None)
        if before is None:  # other runs differ in their tasks on purpose
            before = {"model": earlier[-1].state.get("model")} if earlier else {}
        for change in changes(before, state):
            logger.warning("%s: %s.", self.path, change)
        record = dataclasses.replace(record, answer_index=_index_file(record.id))
        self._write_record(record)
        self._write_index(record, index)
        return record

    def _write_index(self, record: RunRecord, index: AnswerIndex) -> None:
        columns: dict[str, Any] = {_RUN_ID_KEY: np.array(record.id)}
        columns |= {
            f"{task}/{column}": values
            for task, table in index.items()
            for column, values in table.items()
        }
        try:
            with atomic_file(self.path / str(record.answer_index)) as file:
                np.savez(file, **columns)
        except OSError as error:
            raise self._recording_error(error) from error

    def answer_index(self, record: RunRecord) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """Returns the answer index of a run: by task name, each an `AnswerIndex`.

        Empty if the run has none or its file is missing. Raises `OutputError` if the file belongs
        to another run or is damaged.
        """
        file = self.path / (record.answer_index or "")
        if not file.is_file():
            return {}
        index: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        try:
            with np.load(file, allow_pickle=False) as columns:
                owner = str(columns[_RUN_ID_KEY]) if _RUN_ID_KEY in columns else None
                # An earlier version may have computed another id, which is then in the name.
                if owner not in (None, record.id) and file.name != _index_file(str(owner)):
                    raise OutputError(
                        f"{file}: this answer index belongs to the run {owner}, not "
                        f"{record.id}. Put the right file back, or move this one away."
                    )
                for key in set(columns) - {_RUN_ID_KEY}:
                    task, _, name = key.rpartition("/")
                    index.setdefault(task, {})[name] = columns[key]
            if not all(map(_is_complete, index.values())):
                raise ValueError("columns are missing")
        except OutputError:
            raise
        except _UNREADABLE_INDEX as error:
            raise OutputError(
                f"{file}: cannot be read as the answer index of a run. Move the file away; answers "
                "are then looked up by their prompts alone."
            ) from error
        return index

    def write_partial(self, results: Mapping[str, Any]) -> None:
        """Writes the results of the tasks that are finished so far to `results_partial.json`.

        Raises `OutputError` if writing fails.
        """
        self._write(PARTIAL_RESULTS_FILE, results)

    def finish(self, run: RunRecord, results: Path) -> None:
        """Marks a run as finished and removes the partial results.

        `results` is the path of the results file. A record that was removed during the run is not
        written again.
        """
        for record in self.records():
            if record.id == run.id:
                self._write_record(dataclasses.replace(record, finished=True, results=results.name))
        (self.path / PARTIAL_RESULTS_FILE).unlink(missing_ok=True)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Creates the folder and holds its lock inside the `with` block.

        If nothing was recorded in the block, the folders that were created are removed again.
        Raises `OutputError` if another run holds the lock or the folder cannot be written.
        """
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(
                f"{self.path}: results cannot be written to this folder "
                f"({error.strerror or error}). Nothing has been run. Give another --output_path."
            ) from error
        try:
            _lock(handle, self.path)
            self._remove_stale_files()
            yield
        finally:
            self._remove_unused_folders(missing)
            os.close(handle)

    def _remove_stale_files(self) -> None:
        """Removes temporary files that a killed run left. Call it only with the lock held."""
        for name in (
            RECORD_FILE,
            _FORMAT_1_INDEX,
            "answer_index_*",
            "results_*.json",
            "samples_*_*",
        ):
            for stale in self.path.glob(f".{name}.*"):
                stale.unlink(missing_ok=True)

    def _remove_unused_folders(self, created: Sequence[Path]) -> None:
        """Removes the folders that a run has `created`, if it failed before it was recorded.

        It then has left at most the lock file and stores of answers and verdicts, which are removed
        too. Folders with other files stay.
        """
        if not created or not self.path.is_dir():
            return
        unused = {self.path / name for name in (LOCK_FILE, ANSWERS_FILE, VERDICTS_FILE)}
        found = set(self.path.iterdir())
        with suppress(OSError):  # some systems do not remove open files
            if found <= unused:  # neither a record nor an answer index was written
                for file in found:
                    file.unlink()
            for folder in created:
                if not any(folder.iterdir()):
                    folder.rmdir()


#: What numpy and `zipfile` raise for a damaged answer index.
_UNREADABLE_INDEX = (
    *(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, NotImplementedError),
    *(RuntimeError, TypeError, OverflowError, MemoryError, SyntaxError, struct.error, zlib.error),
)


def _is_complete(table: Mapping[str, np.ndarray[Any, Any]]) -> bool:
    """Returns whether one task's answer index has its columns, with one row per request."""
    needed = ("keys", "document", "place")
    return (
        set(needed) <= set(table)
        and table["keys"].ndim == 2
        and len({len(table[name]) for name in needed}) == 1
    )


def _index_file(run_id: str) -> str:
    """Returns the name of the file with a run's answer index."""
    return f"answer_index_{run_id}.npz"


def shared_store(use_cache: str) -> Path:
    """Returns the path of the store that `use_cache` names.

    That is `answers.sqlite` in it if it is an existing folder, and else the path itself. `~` is
    expanded.
    """
    path = Path(use_cache).expanduser()
    return path / ANSWERS_FILE if path.is_dir() else path


def _lock(handle: int, folder: Path) -> None:
    """Locks the open lock file `handle` and writes our process id into it.

    Raises `OutputError`, naming `folder`, if another process holds the lock. The system releases
    the lock when the process ends, even if it is killed. Does nothing on Windows.
    """
    try:
        import fcntl
    except ImportError:  # not available on Windows; SQLite still protects the store
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(handle, 32).decode(errors="replace").strip()
        raise OutputError(
            f"{folder}: another run (process {owner or 'unknown'}) is using this folder. Wait "
            "until it ends, or give another --output_path. To share answers between runs at the "
            "same time, use --use_cache FILE."
        ) from error
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
