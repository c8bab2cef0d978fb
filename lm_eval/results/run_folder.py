"""A run is its folder: what was asked for, every answer, and whether it came to its end.

`run.json` holds the settings, so that `lm-eval resume` needs nothing else, and hashes of the model,
the tasks and their prompts, so that a change since is noticed. `answers.sqlite` is the store, and
`plan.npz` says which answer belongs to which document.
"""

from __future__ import annotations

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
from lm_eval.results.whereabouts import go_where_it_was_run

logger = logging.getLogger(__name__)

NAME = "run.json"
ANSWERS = "answers.sqlite"
LOCK = "run.lock"
PLAN = "plan.npz"
PARTIAL = "results_partial.json"
FORMAT = 1


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
    def find(cls, path: str | Path) -> RunFolder:
        """The run in a folder or in a folder of it: the last one begun where there are several."""
        root = Path(path)
        if not root.is_dir():
            raise OutputError(f"{root}: there is no such folder.")
        runs = cls.all_in(root)
        if not runs:
            raise OutputError(
                f"{root}: holds no run ({NAME}). A run leaves one where its --output_path points."
            )
        return max(runs, key=lambda run: run.read().get("begun", 0.0))

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

    def read(self) -> dict[str, Any]:
        """What the last run here was; nothing where there was none."""
        file = self.path / NAME
        if not file.is_file():
            return {}
        content = self._read(file)
        state = content.get("state")
        whole = isinstance(state, dict) and isinstance(state.get("tasks"), dict)
        if not (whole and isinstance(content.get("settings"), dict) and "directory" in content):
            raise OutputError(
                f"{file}: is no whole record of a run. Move it aside; the command that made the "
                f"run goes on from the answers in {ANSWERS}, if those are there."
            )
        return content

    @staticmethod
    def _read(file: Path) -> dict[str, Any]:
        try:
            content: Any = json.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise OutputError(
                f"{file}: cannot be read as a run's record ({error}). Move it aside; the command "
                f"that made the run goes on from the answers in {ANSWERS}."
            ) from error
        if not isinstance(content, dict) or content.get("format") not in range(1, FORMAT + 1):
            raise OutputError(
                f"{file}: is no record of a run, or one by a newer version of lm_eval. "
                "Name another --output_path, or move it aside."
            )
        return dict(content)

    def write(self, record: Mapping[str, Any]) -> None:
        """The record; for its owner alone where the settings hold what opens the model's door."""
        self._write(NAME, {"format": FORMAT, **record}, private=has_secrets(record["settings"]))

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

    def go_where_it_was_run(self, for_model: bool = True) -> None:
        """Settings may hold paths relative to where the command was first given."""
        record = self.read()
        arguments = (record["settings"].get("model_args") or {}) if for_model else {}
        go_where_it_was_run(record["directory"], arguments, record["state"].get("model"))

    def begin(self, settings: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """Record a run that is about to ask; say what has changed since the last one here."""
        for change in changes(self.read().get("state", {}), state):
            logger.warning("%s: %s.", self.path, change)
        self.write(
            {
                "begun": time.time(),
                "finished": False,
                "directory": str(Path.cwd()),
                "settings": settings,
                "state": state,
            }
        )

    def keep_plan(self, plan: Mapping[str, Mapping[str, np.ndarray[Any, Any]]]) -> None:
        """Which answer belongs to which document, a table a task."""
        columns = {
            f"{task}/{name}": column
            for task, table in plan.items()
            for name, column in table.items()
        }
        try:
            with atomic_file(self.path / PLAN) as file:
                np.savez(file, **columns)  # type: ignore[arg-type]
        except OSError as error:
            raise self._not_recorded(error) from error

    def plan(self) -> dict[str, dict[str, np.ndarray[Any, Any]]]:
        """What `keep_plan` kept, by task; nothing where there is none."""
        file = self.path / PLAN
        if not file.is_file():
            return {}
        plan: dict[str, dict[str, np.ndarray[Any, Any]]] = {}
        try:
            with np.load(file, allow_pickle=False) as columns:
                for key in columns:
                    task, _, name = key.rpartition("/")
                    plan.setdefault(task, {})[name] = columns[key]
        except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
            raise OutputError(f"{file}: cannot be read as a run's plan ({error}).") from error
        return plan

    def write_partial(self, results: Mapping[str, Any]) -> None:
        """The rows of the tasks that are finished, until all are."""
        self._write(PARTIAL, results)

    def finish(self, results: Path) -> None:
        """Record that all is done; nothing where somebody removed the record meanwhile."""
        if record := self.read():
            self.write({**record, "finished": True, "results": results.name})
        (self.path / PARTIAL).unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the folder: a second run on it is refused, and none is ever corrupted."""
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
        """Remove what a run that was killed had begun to write; while we hold the folder, nobody
        is writing it.
        """
        for begun in (f".{NAME}.*", f".{PLAN}.*", ".results_*.json.*", ".samples_*_*.*"):
            for stale in self.path.glob(begun):
                stale.unlink(missing_ok=True)

    def _clean(self, made: Sequence[Path]) -> None:
        """Leave nothing behind of a run that was refused before it was begun."""
        if not made or not self.path.is_dir():
            return
        found, unused = set(self.path.iterdir()), {self.path / LOCK, self.path / ANSWERS}
        with suppress(OSError):  # some systems keep what is open
            if found <= unused:  # not even the record of a run, nor its plan
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


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What is not as it was when the run was begun, in words."""
    found = []
    if now.get("model") is not None and before.get("model") not in (None, now["model"]):
        what = _other_parts(before["model"], now["model"])
        found.append(
            f"the model is another one or was changed{what}: its answers are asked for anew"
        )
    for name, task in now["tasks"].items():
        old = before.get("tasks", {}).get(name)
        if old is None:
            continue
        parts = {"config": "its configuration", "data": "its data", "prompts": "its prompts"}
        if old.get("documents") != task.get("documents"):  # others were asked: others were written
            del parts["prompts"]
        changed = [words for key, words in parts.items() if old.get(key) != task[key]]
        if changed:
            found.append(f"task {name}: changed since: {', '.join(changed)}")
    return found


def _other_parts(before: str, now: str) -> str:
    """Which parts of a model's identity are others, in brackets."""
    try:
        one, two = json.loads(before), json.loads(now)
        parts = [part for part in {**one, **two} if one.get(part) != two.get(part)]
    except (ValueError, TypeError, AttributeError):  # of another version's making
        return ""
    return f" ({', '.join(parts)})"
