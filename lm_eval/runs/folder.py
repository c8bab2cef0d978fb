"""The folder of one model's runs: their settings, every answer, and whether they came to an end.

`run.json` holds a record per run (`runs/record.py`), so that `lm-eval resume` needs nothing else.
`answers.sqlite` is the store that all runs of the folder share, and `answer_index_<id>.npz` says
which answer belongs to which document of a run.
"""

from __future__ import annotations

import dataclasses
import errno
import json
import logging
import os
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lm_eval.config.run import has_secrets
from lm_eval.errors import OutputError
from lm_eval.results.files import atomic_file, write_atomically
from lm_eval.results.names import file_name
from lm_eval.results.serialise import handle_non_serializable
from lm_eval.runs.record import RunRecord, changes

logger = logging.getLogger(__name__)

NAME = "run.json"
ANSWERS = "answers.sqlite"
LOCK = "run.lock"
PARTIAL = "results_partial.json"
#: Format 1 held a single run, and its index in `plan.npz`.
FORMAT = 2
_OLD_INDEX = "plan.npz"
#: The name in an answer index under which the id of its run stands.
_RUN = "run id"

#: By task, the columns that `engine.places.places_of` makes.
AnswerIndex = Mapping[str, Mapping[str, "np.ndarray[Any, Any]"]]


@dataclass(frozen=True)
class RunFolder:
    """Where one model's runs into one output path live."""

    path: Path

    @classmethod
    def of(cls, output_path: str | Path, model_name: str) -> RunFolder:
        """Beside the results: the model's folder, or for `x.json` the folder `x.run`."""
        path = Path(output_path)
        if path.suffix == ".json":
            return cls(path.with_suffix(".run"))
        return cls(path / file_name(model_name))

    @classmethod
    def all_in(cls, root: Path) -> list[RunFolder]:
        """The runs in a folder and in the folders of it; none where there is no folder."""
        try:
            found = [root, *sorted(p for p in root.iterdir() if p.is_dir())]
            return [cls(folder) for folder in found if (folder / NAME).is_file()]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except PermissionError as error:
            raise OutputError(f"{error.filename}: may not be read ({error.strerror}).") from error

    @property
    def answers(self) -> Path:
        return self.path / ANSWERS

    def output_path(self, model_name: str) -> Path:
        """The output path that means this folder, wherever it was moved to since it was begun."""
        for path in (self.path.parent, self.path.with_suffix(".json")):
            if RunFolder.of(path, model_name).path == self.path:
                return path
        expected = RunFolder.of(self.path.parent, model_name).path.name
        raise OutputError(
            f"{self.path}: its name was changed since the run was begun; call it {expected} again."
        )

    def records(self) -> list[RunRecord]:
        """Returns the runs of this folder, the one begun last at the end."""
        file = self.path / NAME
        if not file.is_file():
            return []
        try:
            content: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise OutputError(
                f"{file}: cannot be read as a run's record ({error}). Move it aside; the command "
                f"that made the run goes on from the answers in {ANSWERS}."
            ) from error
        layout: Any = content.get("format") if isinstance(content, dict) else None
        if layout not in range(1, FORMAT + 1):
            raise OutputError(
                f"{file}: is no record of a run, or one by a newer version of lm_eval. "
                "Name another --output_path, or move it aside."
            )
        runs = content.get("runs") if layout > 1 else [{"answer_index": _OLD_INDEX, **content}]
        found = [RunRecord.read(run, file) for run in runs or ()]
        return sorted(found, key=lambda run: run.begun)

    def _keep(self, record: RunRecord) -> None:
        """Writes a record in the place of the run's earlier one.

        The file is readable by its owner alone if the settings hold a secret.
        """
        others = [other for other in self.records() if other.id != record.id]
        runs = [*others, record]
        private = any(has_secrets(run.settings) for run in runs)
        content = {"format": FORMAT, "runs": [run.to_json() for run in runs]}
        self._write(NAME, content, private=private)

    def _write(self, name: str, content: Mapping[str, Any], private: bool = False) -> None:
        text = json.dumps(content, indent=2, default=handle_non_serializable, ensure_ascii=False)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path / name, [text], private=private)
        except OSError as error:
            raise self._not_recorded(error) from error

    def _not_recorded(self, error: OSError) -> OutputError:
        full = error.errno == errno.ENOSPC
        remedy = "; make space and give the same command again to go on" if full else ""
        return OutputError(
            f"{self.path}: the run cannot be recorded there ({error.strerror or error}){remedy}."
        )

    def begin(
        self,
        settings: Mapping[str, Any],
        state: Mapping[str, Any],
        index: AnswerIndex,
        model_object: bool = False,
    ) -> RunRecord:
        """Records a run that is about to ask; logs what has changed since it was begun before."""
        record = RunRecord(
            dict(settings), dict(state), time.time(), str(Path.cwd()), model_object=model_object
        )
        earlier = self.records()
        before = next((run.state for run in earlier if run.id == record.id), None)
        if before is None:  # another run's tasks were asked differently on purpose
            before = {"model": earlier[-1].state.get("model")} if earlier else {}
        for change in changes(before, state):
            logger.warning("%s: %s.", self.path, change)
        record = dataclasses.replace(record, answer_index=f"answer_index_{record.id}.npz")
        self._keep(record)
        self._write_index(record, index)
        return record

    def _write_index(self, record: RunRecord, index: AnswerIndex) -> None:
        columns: dict[str, Any] = {_RUN: np.array(record.id)}
        columns |= {
            f"{task}/{column}": values
            for task, table in index.items()
            for column, values in table.items()
        }
        try:
            with atomic_file(self.path / str(record.answer_index)) as file:
                np.savez(file, **columns)
        except OSError as error:
            raise self._not_recorded(error) from error

    def answer_index(self, record: RunRecord) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """Returns which answer belongs to which document of a run, by task; empty if unknown."""
        file = self.path / (record.answer_index or "")
        if not file.is_file():
            return {}
        index: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        try:
            with np.load(file, allow_pickle=False) as columns:
                if _RUN in columns and str(columns[_RUN]) != record.id:
                    raise OutputError(
                        f"{file}: belongs to the run {columns[_RUN]}, not {record.id}; put its own "
                        "file back, or move it aside."
                    )
                for key in set(columns) - {_RUN}:
                    task, _, name = key.rpartition("/")
                    index.setdefault(task, {})[name] = columns[key]
        except OutputError:
            raise
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
            raise OutputError(
                f"{file}: cannot be read as a run's answer index. Move it aside: answers are then "
                "found by what was asked alone."
            ) from error
        return index

    def write_partial(self, results: Mapping[str, Any]) -> None:
        """The rows of the tasks that are finished, until all are."""
        self._write(PARTIAL, results)

    def finish(self, run: RunRecord, results: Path) -> None:
        """Records that a run is finished; does nothing if its record was removed meanwhile."""
        for record in self.records():
            if record.id == run.id:
                self._keep(dataclasses.replace(record, finished=True, results=results.name))
        (self.path / PARTIAL).unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Holds the folder's lock: a second run on it is refused, and none is ever corrupted."""
        missing = [folder for folder in (self.path, *self.path.parents) if not folder.exists()]
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise OutputError(
                f"{self.path}: results cannot be written there ({error.strerror or error}). "
                "Nothing has been run."
            ) from error
        try:
            _lock(handle, self.path)
            self._sweep()
            yield
        finally:
            self._clean(missing)
            os.close(handle)

    def _sweep(self) -> None:
        """Removes temporary files that a killed run left; we hold the lock, so nobody writes."""
        for name in (NAME, _OLD_INDEX, "answer_index_*", "results_*.json", "samples_*_*"):
            for stale in self.path.glob(f".{name}.*"):
                stale.unlink(missing_ok=True)

    def _clean(self, made: Sequence[Path]) -> None:
        """Removes the folders that a run made, if it was refused before it was begun."""
        if not made or not self.path.is_dir():
            return
        found, unused = set(self.path.iterdir()), {self.path / LOCK, self.path / ANSWERS}
        with suppress(OSError):  # some systems keep what is open
            if found <= unused:  # not even the record of a run, nor its answer index
                for file in found:
                    file.unlink()
            for folder in made:
                if not any(folder.iterdir()):
                    folder.rmdir()


def _lock(handle: int, folder: Path) -> None:
    """The system lets go of the lock when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this system; SQLite still keeps the store whole
        return
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        owner = os.read(handle, 32).decode(errors="replace").strip()
        raise OutputError(
            f"{folder}: another run (process {owner or 'unknown'}) is at work on it. Wait for it, "
            "or give another --output_path; --use_cache FILE shares answers between runs."
        ) from error
    os.ftruncate(handle, 0)
    os.write(handle, f"{os.getpid()}\n".encode())
