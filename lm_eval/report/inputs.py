"""Finds what a report shows: the results, samples and studies that paths mean.

Nothing here runs code of a run. Results and sample logs are read as data; answers of a run without
sample logs are scored again by `rescore`, which refuses runs of other people that need their code.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval.errors import ConfigError, DataError, EvalError, OutputError
from lm_eval.report.checked_results import checked_results
from lm_eval.rescore import Source, rescore
from lm_eval.results.files import sample_files
from lm_eval.results.find_logs import find_logs, results_beside
from lm_eval.results.reader import latest_results, read_valid_fields
from lm_eval.results.sample_log import read_samples_file
from lm_eval.runs.folder import PARTIAL_RESULTS_FILE
from lm_eval.runs.stored import StoredRun, choose_runs, find_runs
from lm_eval.stored_requests import Changes
from lm_eval.sweeps.record import SweepRecord, is_sweep, read_sweep

logger = logging.getLogger(__name__)

Sample = dict[str, Any]
STUDY_FILE = "study.json"
#: More runs do not fit beside each other.
MOST_RUNS = 12


@dataclass
class ReportRun:
    """One run of a report.

    Attributes:
        path: the file or folder that it was found at.
        results: the content of its results file; `results` in it may be empty.
        logs: the sample log of each task that has one.
        stored: the run in its folder, if there is one.
        label: a short name, unique among the runs of a report.
        notes: what is missing, in sentences.
        rescored: samples that were computed from stored answers, by task.
    """

    path: Path
    results: Mapping[str, Any]
    logs: Mapping[str, Path] = field(default_factory=dict)
    stored: StoredRun | None = None
    label: str = ""
    notes: list[str] = field(default_factory=list)
    rescored: Mapping[str, list[Sample]] = field(default_factory=dict)

    @property
    def model(self) -> str:
        """The name of the model; its backend or the name of the folder if it is not known."""
        config = self.results.get("config")
        backend = config.get("model") if isinstance(config, Mapping) else None
        stored = self.stored.record.settings.get("model") if self.stored is not None else None
        return str(self.results.get("model_name") or backend or stored or self.path.name)

    @property
    def tasks(self) -> list[str]:
        """The names of the tasks, without groups."""
        subtasks = self.results.get("group_subtasks") or {}
        groups = {name for name, members in subtasks.items() if members}
        rows = [name for name in self.results.get("results") or {} if name not in groups]
        return list(dict.fromkeys([*rows, *self.logs, *self.rescored]))

    @property
    def comparable(self) -> str:
        """The path under which `lm_eval.compare` finds this run."""
        if self.stored is None:
            return str(self.path)
        return f"{self.stored.folder.path}#{self.stored.record.id}"

    def samples(self, task: str) -> list[Sample]:
        """Returns the samples of a task; empty if there are none, with a note if that is an error.

        There is one sample per document and filter pipeline.
        """
        if task in self.rescored:
            return self.rescored[task]
        if task not in self.logs:
            return []
        try:
            return read_samples_file(self.logs[task])
        except DataError as error:
            self.notes.append(f"{task}: the sample log cannot be read: {error}")
            return []

    def score_stored_answers(self) -> None:
        """Computes the samples of tasks without a sample log from the answer store.

        What cannot be computed is named in `notes`.
        """
        missing = [name for name in self.tasks if name not in self.logs]
        if not missing:
            return
        if self.stored is None or not self.stored.answers.is_file():
            what = "samples" if not self.logs else f"samples of {_listed(missing)}"
            self.notes.append(
                f"There are no {what}: the run has neither sample logs nor stored answers. "
                "Run with --log_samples or --output_path to keep them."
            )
            return
        wanted = Changes(tasks=missing, settings={"log_samples": True, "bootstrap_iters": 0})
        try:
            results = rescore(Source(self.stored.folder.path, wanted, self.stored))[1]
        except EvalError as error:
            reason = " ".join(str(error).split())
            self.notes.append(f"There are no samples of {_listed(missing)}: {reason}")
            return
        self.rescored = results.get("samples") or {}
        self.notes.append(
            f"The samples of {_listed(missing)} were computed from the stored answers with the "
            "current task files, because the run has no sample log of them."
        )


@dataclass(frozen=True)
class Inputs:
    """What a report is made of."""

    runs: Sequence[ReportRun]
    studies: Sequence[Mapping[str, Any]]
    sweeps: Sequence[SweepRecord] = ()


def find_inputs(paths: Sequence[str | Path]) -> Inputs:
    """Returns the runs, studies and sweeps at the given paths.

    A path is a results file, also of the published harness, a sample log, a run folder or
    `output_path` (`PATH#ID` selects one of its runs), a folder of sample logs, a `study.json`, the
    folder of a study, or that of a sweep or a training run (`sweep.json`). Of a folder with several
    runs, all are returned.

    Raises:
        OutputError: a path does not exist, or has nothing to show.
        ConfigError: there are more than `MOST_RUNS` runs, or no path was given.
    """
    if not paths:
        raise ConfigError("report needs a run: the folder of its --output_path, or a results file.")
    runs: list[ReportRun] = []
    studies: list[Mapping[str, Any]] = []
    sweeps: list[SweepRecord] = []
    for path in paths:
        text, run_id = str(path), ""
        if not Path(path).exists():
            text, _, run_id = text.partition("#")
        place = Path(text)
        if not place.exists():
            raise OutputError(f"{place}: this file or folder does not exist. Check the path.")
        if is_sweep(place):
            sweeps.append(read_sweep(place))
            continue
        study = _read_study(place / STUDY_FILE if place.is_dir() else place)
        if study is not None:
            studies.append(study)
        else:
            runs += _of_folder(place, run_id) if place.is_dir() else [_of_file(place)]
    if len(runs) > MOST_RUNS:
        raise ConfigError(
            f"a report shows up to {MOST_RUNS} runs side by side; these are {len(runs)}. Name "
            "fewer folders, or FOLDER#ID for one run of a folder."
        )
    return Inputs(with_labels(runs), studies, sweeps)


def with_labels(runs: Sequence[ReportRun]) -> list[ReportRun]:
    """Returns the runs with labels: the model, or also the folder where models have one name."""
    labels = [Path(run.model).name or run.model for run in runs]
    if len(set(labels)) < len(labels):
        labels = [f"{one} ({_place(run)})" for one, run in zip(labels, runs, strict=True)]
    if len(set(labels)) < len(labels):
        labels = [f"{i + 1}: {label}" for i, label in enumerate(labels)]
    return [replace(run, label=label) for run, label in zip(runs, labels, strict=True)]


def _place(run: ReportRun) -> str:
    """Returns the name of the folder that tells a run from others: usually its `output_path`."""
    if run.stored is not None:
        return run.stored.folder.path.absolute().parent.name
    folder = run.path.absolute() if run.path.is_dir() else run.path.absolute().parent
    return folder.name


def of_stored_run(stored: StoredRun) -> ReportRun:
    """Returns the run of a run folder, with its results as far as it has any."""
    folder, record = stored.folder.path, stored.record
    name = record.results if record.finished else PARTIAL_RESULTS_FILE
    files = [folder / str(name), folder.parent / str(name)]
    file = next((f for f in files if name and f.name == name and f.is_file()), None)
    if file is not None:
        run = replace(of_results_file(file), stored=stored)
    else:
        names: dict[str, Any] = {task: {} for task in record.tasks}
        run = ReportRun(folder, {"results": names}, stored=stored)
    if not record.finished:
        run.notes.insert(
            0,
            "The run is not finished"
            + (": the table has the tasks that are." if file else ", so there are no scores yet.")
            + " Continue it with `lm-eval resume`.",
        )
    elif file is None:
        run.notes.append(f"The results file {name} is missing.")
    return run


def of_results_file(file: Path) -> ReportRun:
    """Returns the run of a results file, with the sample logs beside it."""
    results, notes = checked_results(*read_valid_fields(file))
    run = ReportRun(file, results, notes=notes)
    names = dict.fromkeys([*(results.get("task_hashes") or {}), *run.tasks])
    logs = {name: log for name, log in sample_files(file, names).items() if log is not None}
    return replace(run, logs=logs)


def _of_file(file: Path) -> ReportRun:
    """Returns the run of a results file, or of one sample log."""
    if file.suffix != ".json":
        return _of_logs(file)
    try:
        run = of_results_file(file)
    except OutputError:
        if _is_log(file):
            return _of_logs(file)
        raise
    for stored in find_runs(file.parent):
        if stored.record.results == file.name:
            return replace(run, stored=stored)
    return run


def _of_folder(folder: Path, run_id: str) -> list[ReportRun]:
    """Returns the runs in a folder: recorded ones, or those of results files or sample logs."""
    if run_id:
        return [of_stored_run(run) for run in choose_runs(folder, run_id)]
    if stored := find_runs(folder):
        return [of_stored_run(run) for run in stored]
    try:
        newest = latest_results(folder)
    except OutputError:
        return [_of_logs(folder)]
    if newest.parent == folder:
        return [_of_file(newest)]
    found = []
    for below in sorted(one for one in folder.iterdir() if one.is_dir()):  # one folder per model
        try:
            found.append(_of_file(latest_results(below)))
        except OutputError:
            continue
    return found or [_of_file(newest)]


def _of_logs(path: Path) -> ReportRun:
    """Returns the run of sample logs at `path`, with the results beside them.

    Without these, scores are computed from the logs.
    """
    logs = find_logs(path)
    if not logs:
        raise OutputError(
            f"{path}: contains neither results (results_<time>.json) nor sample logs "
            "(samples_<task>_<time>.jsonl). Give the --output_path of a run."
        )
    beside = next((one for one in results_beside(logs).values() if one.get("results")), None)
    if beside is not None:
        checked, notes = checked_results(beside)
        return ReportRun(path, checked, logs, notes=notes)
    results: Mapping[str, Any] = {"results": {name: {} for name in logs}}
    notes = ["There is no results file; the scores were computed from the sample logs."]
    try:
        wanted = Changes(settings={"log_samples": False, "bootstrap_iters": 0})
        results = rescore(Source(path.absolute(), wanted))[1]
    except EvalError as error:
        notes = [f"There is no results file, and scores cannot be computed: {error}"]
    return ReportRun(path, results, logs, notes=notes)


def _is_log(file: Path) -> bool:
    try:
        return bool(find_logs(file))
    except OutputError:
        return False


def _read_study(file: Path) -> Mapping[str, Any] | None:
    """Returns the content of a file that `lm-eval study` wrote; None if it is something else."""
    if file.suffix != ".json" or not file.is_file():
        return None
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    keys = {"models", "scores", "distributions"}
    return content if isinstance(content, dict) and keys <= set(content) else None


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more tasks" if len(names) > 6 else "")
