"""Runs a sweep: skips what is finished, runs the rest, and records what became of each run."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval.errors import ConfigError, EvalError
from lm_eval.launch import launched_count
from lm_eval.runs.folder import ANSWERS_FILE, RunFolder
from lm_eval.sweeps import worker
from lm_eval.sweeps.devices import Gpu, visible_gpus
from lm_eval.sweeps.jobs import jobs_of
from lm_eval.sweeps.matrix import Matrix, SweepRun
from lm_eval.sweeps.plan import (
    PlannedRun,
    check_runs,
    count_requests,
    finished_results,
    folder_of,
)
from lm_eval.sweeps.pool import COMMAND, Pool
from lm_eval.sweeps.record import (
    FAILED,
    FINISHED,
    LOGS,
    PARTIAL,
    RecordedRun,
    SweepRecord,
    is_sweep,
    read_sweep,
)

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SweepOptions:
    """How a sweep is run.

    Attributes:
        jobs: how many worker processes run at a time; None for one per free GPU, or one.
        fresh: whether finished runs and stored answers are ignored.
        command: the command of a worker process.
    """

    jobs: int | None = None
    fresh: bool = False
    command: Sequence[str] = COMMAND

    def __post_init__(self) -> None:
        if self.jobs is not None and self.jobs < 1:
            raise ConfigError(f"jobs must be 1 or more, not {self.jobs}.")


def sweep_runs(matrix: Matrix, output_path: str | Path) -> list[SweepRun]:
    """Returns the runs of a sweep below `output_path`.

    They share one answer store, so that equal requests are sent once, unless the file names one.
    Raises `ConfigError` as `Matrix.runs` does, and if `output_path` is a file.
    """
    folder = Path(output_path)
    if folder.suffix == ".json" or folder.is_file():
        raise ConfigError(f"the output path of a sweep must be a folder, not {folder}.")
    store = str(folder.absolute() / ANSWERS_FILE)
    runs = matrix.runs(folder.absolute())
    return [
        run if run.config.use_cache else replace(run, config=replace(run.config, use_cache=store))
        for run in runs
    ]


def plan_sweep(runs: Sequence[SweepRun], fresh: bool = False) -> list[PlannedRun]:
    """Returns what a sweep would do, with requests and stored answers counted; runs nothing.

    Raises an `EvalError` if a run cannot work.
    """
    check_runs(runs)
    planned = [PlannedRun(run, None if fresh else finished_results(run)) for run in runs]
    return count_requests(jobs_of(runs, visible_gpus()), planned)


def run_sweep(
    runs: Sequence[SweepRun], output_path: str | Path, options: SweepOptions | None = None
) -> SweepRecord:
    """Runs what is not finished and returns the record of the whole sweep.

    The record is also written to the folder whenever a run ends. A run that fails is recorded with
    its message, and does not stop the others. The same call continues an interrupted sweep.

    Args:
        runs: the runs (`sweep_runs`).
        output_path: the folder of the sweep.
        options: how they are run.

    Raises:
        EvalError: a run cannot work, or the folder is used by another sweep; nothing was run.
        KeyboardInterrupt: the user interrupted the sweep; answers are stored.
    """
    options = options or SweepOptions()
    if launched_count() > 1:
        raise ConfigError(
            "a sweep starts its own processes: run it without accelerate launch or torchrun."
        )
    check_runs(runs)
    folder = Path(output_path).absolute()
    with RunFolder(folder).locked():
        progress = _Progress(folder, runs, options.fresh)
        waiting = progress.waiting()
        if len(waiting) < len(runs):
            logger.info("%d of %d runs are finished.", len(runs) - len(waiting), len(runs))
        if waiting:
            gpus = _free_gpus()
            pool = Pool(
                gpus, options.jobs, folder / LOGS, options.fresh, progress.on_event, options.command
            )
            try:
                pool.run(jobs_of(waiting, gpus))
            except KeyboardInterrupt as stop:
                raise KeyboardInterrupt(
                    "The answers so far are stored. Run the same command again to continue."
                ) from stop
        return progress.record


def _free_gpus() -> list[Gpu]:
    """Returns the GPUs that nobody uses; logs a warning if there are only others."""
    gpus = visible_gpus()
    free = [gpu for gpu in gpus if gpu.is_free]
    if gpus and not free:
        logger.warning("All GPUs of this machine are in use. Models are run one after the other.")
    return free


class _Progress:
    """Keeps the record of a sweep up to date while it runs."""

    def __init__(self, folder: Path, runs: Sequence[SweepRun], fresh: bool) -> None:
        self._runs = {run.name: run for run in runs}
        self._positions = {run.name: i for i, run in enumerate(runs)}
        recorded = []
        for run in runs:
            file = None if fresh else finished_results(run)
            one = RecordedRun(run.name, run.model, dict(run.labels), run.step)
            recorded.append(one if file is None else _finished(one, folder, file))
        _warn_of_removed(folder, self._runs)
        self.record = SweepRecord(folder, recorded)
        self.record.write()
        self._ended = sum(one.state == FINISHED for one in recorded)

    def waiting(self) -> list[SweepRun]:
        """Returns the runs that are not finished."""
        return [self._runs[one.name] for one in self.record.runs if one.state != FINISHED]

    def on_event(self, name: str, event: dict[str, Any]) -> None:
        """Records what became of a run, and logs it."""
        if event["event"] == worker.STARTED:
            logger.info("%s: started", name)
            return
        self._ended += 1
        position, count = self._positions[name], len(self._runs)
        one = self.record.runs[position]
        if event["event"] == worker.FINISHED:
            state = PARTIAL if event["partial"] else FINISHED
            results = _latest_results(self._runs[name])
            one = _finished(one, self.record.folder, results, state)
            logger.info(
                "%s: finished, %d requests sent (%d of %d runs)",
                name,
                event["asked"],
                self._ended,
                count,
            )
        else:
            one = replace(one, state=FAILED, message=event["message"])
            logger.error("%s: failed: %s (%d of %d runs)", name, one.message, self._ended, count)
        self.record.runs[position] = one
        self.record.write()


def _warn_of_removed(folder: Path, runs: Mapping[str, SweepRun]) -> None:
    """Logs a warning if the sweep that the folder contains has runs that this one does not have."""
    try:
        before = read_sweep(folder).runs if is_sweep(folder) else []
    except EvalError:  # damaged; it is written anew
        return
    removed = [one.name for one in before if one.results is not None and one.name not in runs]
    if removed:
        logger.warning(
            "%s contains results of runs that are not in this sweep, and that its table will not "
            "show: %s%s. Their folders are kept. Give another --output_path to keep sweeps apart.",
            folder,
            ", ".join(removed[:5]),
            " …" if len(removed) > 5 else "",
        )


def _finished(
    one: RecordedRun, folder: Path, results: Path | None, state: str = FINISHED
) -> RecordedRun:
    path = None if results is None else results.relative_to(folder).as_posix()
    return replace(one, state=state, results=path, message="")


def _latest_results(run: SweepRun) -> Path | None:
    """Returns the results file that a run has just written."""
    folder = folder_of(run)
    done = [record for record in folder.records() if record.finished and record.results]
    return folder.path / str(done[-1].results) if done else None
