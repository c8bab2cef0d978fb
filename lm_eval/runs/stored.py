"""Runs that lie below a path: listed, chosen, and made ready to go on or be scored again."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from lm_eval.config.run import RunConfig
from lm_eval.errors import OutputError, WhichRunError
from lm_eval.results.provenance import model_name
from lm_eval.runs.folder import ANSWERS, NAME, RunFolder
from lm_eval.runs.record import RunRecord
from lm_eval.runs.whereabouts import where_it_was_run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredRun:
    """A run and the folder it lies in."""

    folder: RunFolder
    record: RunRecord

    @property
    def file(self) -> Path:
        """The file that holds its record."""
        return self.folder.path / NAME

    @property
    def answers(self) -> Path:
        """The store that holds its answers: the folder's own, or the one that --use_cache named."""
        shared = self.record.settings.get("use_cache")
        if shared is None:
            return self.folder.answers
        return Path(shared) / ANSWERS if Path(shared).is_dir() else Path(shared)

    def describe(self) -> str:
        """Returns one line for a list of runs."""
        return f"{self.folder.path.name}: {self.record.describe()}"

    def to_resume(self) -> RunConfig:
        """Returns the settings with which the run goes on in the folder where it is now."""
        if self.record.model_object:
            raise OutputError(
                f"{self.folder.path}: the run was made with a model object "
                f"({self.record.settings['model']}), which only your program can make. Call "
                "simple_evaluate with the object and the same output_path to go on."
            )
        run = self.record.config(self.file)
        return replace(run, output_path=str(self.folder.output_path(model_name(run))))

    @contextmanager
    def where_it_was_run(self, with_model: bool) -> Iterator[None]:
        """Goes to the directory of the first command; raises if a model named from there is lost.

        `with_model=False` leaves the model out of it.
        """
        arguments = (self.record.settings.get("model_args") or {}) if with_model else {}
        identity = self.record.state.get("model")
        with where_it_was_run(self.record.directory, arguments, identity):
            yield


def find_runs(path: str | Path) -> list[StoredRun]:
    """Returns the runs in a folder and in the folders of it, by model, then by time."""
    return [
        StoredRun(folder, record)
        for folder in RunFolder.all_in(Path(path))
        for record in folder.records()
    ]


def choose_runs(path: str | Path, run_id: str | None = None) -> list[StoredRun]:
    """Returns the runs below a path, or those whose id begins with `run_id`; raises if none."""
    root = Path(path)
    if not root.is_dir():
        raise OutputError(f"{root}: there is no such folder.")
    runs = find_runs(root)
    if not runs:
        raise OutputError(
            f"{root}: holds no run ({NAME}). A run leaves one where its --output_path points."
        )
    if run_id is None:
        return runs
    chosen = [run for run in runs if run_id and run.record.id.startswith(str(run_id))]
    if not chosen:
        raise WhichRunError(f"{root}: holds no run {run_id!r}. {_listed(runs)}")
    return chosen


def the_run(runs: Sequence[StoredRun], path: str | Path) -> StoredRun:
    """Returns the only run; raises with a list of them if there are several."""
    if len(runs) == 1:
        return runs[0]
    models = len({run.folder for run in runs})
    folder = ", or give the folder of its model" if models == len(runs) else ""
    raise WhichRunError(
        f"{path}: holds {len(runs)} runs; name one with --run ID (from Python: run=ID){folder}. "
        f"{_listed(runs)}"
    )


def run_to_resume(path: str | Path, run_id: str | None = None) -> StoredRun:
    """Returns the run that `resume` goes on with: the only one, or the only unfinished one."""
    runs = choose_runs(path, run_id)
    unfinished = [run for run in runs if not run.record.finished]
    if len(runs) > 1 and len(unfinished) == 1:
        logger.info(
            "%s holds %d runs; going on with the unfinished one: %s",
            path,
            len(runs),
            unfinished[0].describe(),
        )
        return unfinished[0]
    return the_run(runs, path)


def _listed(runs: Sequence[StoredRun]) -> str:
    return "They are:" + "".join(f"\n  {run.describe()}" for run in runs)
