"""Stored runs: finds the runs below a path and selects the one to resume or score again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval.config.run import RunConfig
from lm_eval.errors import OutputError, WhichRunError
from lm_eval.results.provenance import model_name
from lm_eval.results.run_signature import made_here
from lm_eval.runs.consent import Consent, check_secrets_given, permitted
from lm_eval.runs.folder import RECORD_FILE, RunFolder
from lm_eval.runs.record import RunRecord
from lm_eval.runs.working_directory import in_original_directory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRun:
    """A run that is recorded in a run folder."""

    folder: RunFolder
    record: RunRecord

    @property
    def file(self) -> Path:
        """The file that contains the run's record (`run.json`)."""
        return self.folder.path / RECORD_FILE

    @property
    def answers(self) -> Path:
        """Path of the store with the run's answers: the folder's own, or that of `--use_cache`."""
        return self.folder.store(self.record.settings.get("use_cache"))

    def describe(self) -> str:
        """Returns one line for a list of runs: folder, id, options, start time, state."""
        return f"{self.folder.path.name}: {self.record.describe()}"

    @property
    def is_own(self) -> bool:
        """Whether the run was made here, by this user (`results.run_signature`)."""
        record = self.record
        return made_here(record.settings, record.directory, record.signature)

    def permitted(self, consent: Consent, *, asks: bool) -> dict[str, Any]:
        """Returns the settings with which the run may be repeated (`consent.permitted`).

        `asks` is whether the model will be loaded. Raises `ForeignRunError` if the run was not made
        here and needs more than `consent` allows, and `ConfigError` if the recorded settings are
        unknown to this version or invalid.
        """
        self.record.config(self.file)  # raises if they cannot be used
        return permitted(self.record.settings, consent, self.file, is_own=self.is_own, asks=asks)

    def to_resume(self, consent: Consent) -> RunConfig:
        """Returns the settings to resume the run; `output_path` is where the folder is now.

        Raises `OutputError` if the model was a Python object, the command contained a key, which is
        not stored, or the folder was renamed, `ForeignRunError` as `permitted` does, and
        `ConfigError` if the settings cannot be used (`RunConfig.from_record`).
        """
        if self.record.model_object:
            raise OutputError(
                f"{self.folder.path}: the run was made with a model object "
                f"({self.record.settings['model']}), which only your program can create. Call "
                "simple_evaluate with the object and the same output_path to continue."
            )
        settings = self.permitted(consent, asks=True)
        check_secrets_given(self.record.left_out, consent, self.folder.path)
        run = RunConfig.from_record(settings, self.file)
        return replace(run, output_path=str(self.folder.output_path(model_name(run))))

    @contextmanager
    def in_original_directory(self, with_model: bool) -> Iterator[None]:
        """Changes to the working directory of the original command inside the `with` block.

        If the run was not made here, or that directory no longer exists, the current one stays.
        `OutputError` is then raised if the model was given by a relative path that does not exist
        here either; `with_model=False` skips this check.
        """
        arguments = (self.record.settings.get("model_args") or {}) if with_model else {}
        identity = self.record.state.get("model")
        directory = self.record.directory if self.is_own else None
        with in_original_directory(directory, arguments, identity):
            yield


def find_runs(path: str | Path) -> list[StoredRun]:
    """Returns the runs in the folder `path` and its direct subfolders; empty if there are none.

    They are sorted by folder, then by start time. Raises `OutputError` if a `run.json` cannot be
    used.
    """
    return [
        StoredRun(folder, record)
        for folder in RunFolder.all_in(Path(path))
        for record in folder.records()
    ]


def choose_runs(path: str | Path, run_id: str | None = None) -> list[StoredRun]:
    """Returns the runs in `path` and its direct subfolders.

    With `run_id` only those whose id starts with it. Raises `OutputError` if the folder or runs in
    it do not exist, and `WhichRunError` with a list of the runs if none has that id.
    """
    root = Path(path)
    if not root.is_dir():
        raise OutputError(f"{root}: there is no such folder. Check the path.")
    runs = find_runs(root)
    if not runs:
        raise OutputError(
            f"{root}: contains no run (no {RECORD_FILE}). Give the folder that was the "
            "--output_path of a run."
        )
    if run_id is None:
        return runs
    chosen = [run for run in runs if run_id and run.record.id.startswith(str(run_id))]
    if not chosen:
        raise WhichRunError(f"{root}: contains no run {run_id!r}. {_list_of_runs(runs)}")
    return chosen


def only_run(
    runs: Sequence[StoredRun], path: str | Path, how: str = "--run ID (in Python: run=ID)"
) -> StoredRun:
    """Returns the only element of `runs`.

    Raises `WhichRunError` with a list of the runs if there is not exactly one. `path` is the folder
    that the error names, and `how` tells how a run is selected.
    """
    if len(runs) == 1:
        return runs[0]
    models = len({run.folder for run in runs})
    folder = ", or give the folder of one model" if models == len(runs) else ""
    raise WhichRunError(
        f"{path}: contains {len(runs)} runs. Select one with {how}{folder}. {_list_of_runs(runs)}"
    )


def run_to_resume(path: str | Path, run_id: str | None = None) -> StoredRun:
    """Returns the run that `resume` continues: the only run, or the only unfinished one.

    With `run_id`, only the runs whose id starts with it are considered. Raises `WhichRunError` if
    several runs are possible or none has that id, and `OutputError` if `path` contains no run.
    """
    runs = choose_runs(path, run_id)
    unfinished = [run for run in runs if not run.record.finished]
    if len(runs) > 1 and len(unfinished) == 1:
        logger.info(
            "%s contains %d runs; resuming the unfinished one: %s",
            path,
            len(runs),
            unfinished[0].describe(),
        )
        return unfinished[0]
    return only_run(runs, path)


def _list_of_runs(runs: Sequence[StoredRun]) -> str:
    return "The runs are:" + "".join(f"\n  {run.describe()}" for run in runs)
