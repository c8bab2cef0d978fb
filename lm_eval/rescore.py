"""Scores stored answers again, without the model; contains `lm_eval.score`.

The answers come from the answer store in a run folder, or from sample logs, written by this
harness or the published one. The tasks are loaded from their current files, so that changed filters
and metrics take effect.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.api.task import Task
from lm_eval.code_scoring import code_session
from lm_eval.config.run import RunConfig
from lm_eval.contamination.findings import read_findings
from lm_eval.engine.gc_pause import gc_paused
from lm_eval.engine.progress import stage
from lm_eval.engine.store import AnswerStore
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.errors import OutputError, suggestion
from lm_eval.logged_tasks import load_from_logs
from lm_eval.preparation import check_run
from lm_eval.results.assemble import assemble
from lm_eval.results.clean_scores import contaminated_documents, with_clean_scores
from lm_eval.results.find_logs import find_logs
from lm_eval.results.provenance import describe_settings
from lm_eval.results.schema import EvalResults, RunStatistics
from lm_eval.results.summarize import UncertaintyConfig, summarize
from lm_eval.runs.consent import Consent
from lm_eval.runs.record import RunRecord
from lm_eval.runs.stored import StoredRun, choose_runs, find_runs, only_run
from lm_eval.scoring import TaskScores, unanswered_documents
from lm_eval.scoring import answered as answered_tasks
from lm_eval.scoring import score as score_task
from lm_eval.stored_answers import set_answers
from lm_eval.stored_requests import (
    Changes,
    SharedRequests,
    build_tasks,
    change_tasks,
    changed_settings,
)
from lm_eval.tasks.manager import TaskDict

logger = logging.getLogger(__name__)


@dataclass
class _AnsweredTasks:
    """Tasks whose requests have their answers, and the other inputs of scoring.

    `numbers` are the indices of the documents of each task, if not all were evaluated; `origin`
    describes where the answers come from, for the results; `verdicts` is the file with the verdicts
    of programs, if the answers come from a run folder; `unanswered` are the numbers of documents
    that are left out because answers are missing.
    """

    run: RunConfig
    loaded: TaskDict
    numbers: Mapping[str, Sequence[int]]
    think_end_token: Any = None
    origin: dict[str, Any] = field(default_factory=dict)
    verdicts: Path | None = None
    unanswered: Mapping[str, int] = field(default_factory=dict)


def score(
    folder: str | Path,
    *,
    run: str | None = None,
    tasks: Sequence[str] | str | None = None,
    filters: Sequence[Any] | str | None = None,
    metrics: Sequence[str] | str | None = None,
    include_path: Sequence[str] | str | None = None,
    log_samples: bool = True,
    **settings: Any,
) -> EvalResults:
    """Scores stored answers again, without the model; returns the results.

    Args:
        folder: a run folder, its `output_path`, a folder with sample logs, or one log.
        run: the id of the run, or its beginning, if there are several; the error message lists
            them.
        tasks: score only these tasks.
        filters: filter pipelines to apply: names of the tasks' own pipelines, or mappings as in the
            `filter_list` of a task file. By default all pipelines of the tasks.
        metrics: report only these metrics.
        include_path: additional folders with tasks.
        log_samples: whether the results contain every document with its answers and scores.
        settings: other settings of the run that scoring uses: `bootstrap_iters`, `confidence`,
            `cluster`, `data_dir`, `decontaminate`, `confirm_run_unsafe_code`,
            `require_isolation`.

    Raises:
        OutputError: there is no such folder, or it contains neither runs nor sample logs
            (`WhichRunError` if it contains several runs and `run` does not choose one).
        DataError: answers are missing, for example because the run was interrupted.
        ConfigError: a setting, filter pipeline or metric is invalid.
        TypeError: an unknown name in `settings`.
    """
    allowed = (
        *("bootstrap_iters", "confidence", "cluster", "data_dir", "decontaminate"),
        "confirm_run_unsafe_code",
        "require_isolation",
    )
    for name in settings:
        if name not in allowed:
            raise TypeError(
                f"score: unknown setting {name!r}.{suggestion(name, allowed)} Known settings: "
                f"{', '.join(allowed)}."
            )
    wanted = Changes(
        tasks=[tasks] if isinstance(tasks, str) else tasks,
        filters=[filters] if isinstance(filters, (str, dict)) else filters,
        metrics=[metrics] if isinstance(metrics, str) else metrics,
        include_path=[include_path] if isinstance(include_path, str) else include_path or (),
        settings={**settings, "log_samples": log_samples},
    )
    sources = find_sources(folder, wanted, run)
    if len(sources) > 1:
        only_run([source.run for source in sources if source.run is not None], folder)
    return rescore(sources[0])[1]


@dataclass(frozen=True)
class Source:
    """Stored answers to score: those of `run`, or of sample logs at `path` if `run` is None.

    `wanted` contains the settings to change.
    """

    path: Path
    wanted: Changes
    run: StoredRun | None = None


def find_sources(path: str | Path, wanted: Changes, run_id: str | None = None) -> list[Source]:
    """Returns the stored answers found at `path`: one source per run, or one for sample logs.

    If `wanted.tasks` is set, returns only the runs that include one of these tasks, each restricted
    to the tasks it includes; if no run does, returns all runs with `wanted` unchanged, since the
    names may be groups, tags or files. Sample logs are used if there are no runs, or
    if no run has its answer store but there are logs.

    Raises `OutputError` if `path` does not exist, or if no run or several have the id `run_id`.

    Args:
        path: a run folder, its `output_path`, or sample logs.
        wanted: the settings to change.
        run_id: the id of the run, or its beginning, to choose one of several.
    """
    root = Path(path).absolute()
    if not root.exists():
        raise OutputError(f"{root}: this file or folder does not exist. Check the path.")
    runs = [only_run(choose_runs(root, run_id), root)] if run_id is not None else find_runs(root)
    # If the answer store is missing, sample logs may still contain the answers.
    usable = [run for run in runs if run.answers.is_file()]
    if not usable and (not runs or find_logs(root)):
        return [Source(root, wanted)]
    usable = usable or runs
    if wanted.tasks is None:
        return [Source(root, wanted, run) for run in usable]
    sources = []
    for run in usable:
        names = _tasks_in_run(run.record, wanted.tasks)
        if names:
            sources.append(Source(root, replace(wanted, tasks=names), run))
    # A group, tag or file may mean tasks of a run although the run was started with other names.
    return sources or [Source(root, wanted, run) for run in usable]


def _tasks_in_run(record: RunRecord, names: Sequence[str]) -> list[str]:
    """Returns those of the named tasks that are part of a run, without duplicates.

    A pattern (`demo_*`) is replaced by the tasks that it matches.
    """
    found: dict[str, None] = {}
    for name in names:
        found |= dict.fromkeys(record.tasks_matching(name))
    return list(found)


@dataclass(frozen=True)
class ScoredAnswers:
    """The scores of stored answers, document by document.

    Attributes:
        run: the settings of the run, with changes.
        groups: the groups by name.
        scores: the scores of each task.
        hashes: the hashes of each task (`task_hashes`); empty for sample logs.
        unanswered: how many documents of a task are left out because they have no answer yet.
    """

    run: RunConfig
    groups: Mapping[str, Group]
    scores: Mapping[str, TaskScores]
    hashes: Mapping[str, Mapping[str, str]]
    unanswered: Mapping[str, int] = field(default_factory=dict)


@numpy_on_one_thread()
def score_documents(source: Source, shared: SharedRequests | None = None) -> ScoredAnswers:
    """Scores stored answers and returns the scores of documents; raises as `rescore` does.

    If `shared` is given, requests are taken from it or kept in it; then the `requests` in the
    scores of tasks are only valid until the next call.
    """
    with gc_paused(), _permitted(source) as settings:
        answered = _load(source, settings, shared)
        check_run(answered.run, answered.loaded["tasks"])
        with code_session(answered.run, answered.verdicts):
            scores = _score_tasks(answered, source.wanted)
    hashes = answered.origin.get("hashes", {})
    groups = answered.loaded["groups"]
    return ScoredAnswers(answered.run, groups, scores, hashes, answered.unanswered)


@numpy_on_one_thread()
@stage("Scoring stored answers")
def rescore(source: Source) -> tuple[RunConfig, EvalResults]:
    """Scores stored answers; returns the settings of their run (with changes), and the results.

    Raises `DataError` if answers are missing or cannot be read, `OutputError` if there are no
    sample logs, and `ConfigError` if a setting, filter pipeline or metric is invalid.
    """
    with _permitted(source) as settings:
        return _score(_load(source, settings), source.wanted)


@contextmanager
def _permitted(source: Source) -> Iterator[Mapping[str, Any]]:
    """Yields the recorded settings that may be used; nothing for sample logs.

    Inside the `with` block, the directory and the environment are those of the run. Raises
    `ForeignRunError` if the run is somebody else's and would use code of theirs.
    """
    if source.run is None:
        yield {}
        return
    wanted = source.wanted
    consent = Consent(
        confirm_run_unsafe_code=bool(wanted.settings.get("confirm_run_unsafe_code")),
        include_path=wanted.include_path,
    )
    settings = source.run.permitted(consent, asks=False)
    if source.run.is_own:  # then the folders are searched in addition to the recorded ones
        settings["include_path"] = source.run.record.settings.get("include_path")
    else:
        settings["include_path"] = None
    run = RunConfig.from_record(settings, source.run.file)
    with source.run.in_original_directory(with_model=False), run.in_environment():
        yield settings


def _load(
    source: Source, settings: Mapping[str, Any], shared: SharedRequests | None = None
) -> _AnsweredTasks:
    """Returns the tasks of a source with their answers; `settings` are those of `_permitted`."""
    if source.run is None:
        return _load_from_logs(source.path, source.wanted)
    return _load_from_run(source.run, settings, source.wanted, shared)


def _score_tasks(answered: _AnsweredTasks, wanted: Changes) -> dict[str, TaskScores]:
    """Returns the scores of tasks whose requests have answers."""
    scores: dict[str, TaskScores] = {}
    for name, task in answered_tasks(answered.loaded["tasks"]).items():
        chosen = wanted.metrics is not None or answered.run.metrics is not None
        scores[name] = score_task(
            task, answered.numbers.get(name), answered.think_end_token, chosen
        )
    return scores


def _score(answered: _AnsweredTasks, wanted: Changes) -> tuple[RunConfig, EvalResults]:
    """Scores tasks whose requests have answers; returns as `rescore` does."""
    run, loaded = answered.run, answered.loaded
    check_run(run, loaded["tasks"])
    findings = None if run.decontaminate is None else read_findings(run.decontaminate)
    decontamination = contaminated_documents(run.decontaminate, findings, loaded["tasks"])
    with code_session(run, answered.verdicts) as programs:
        scores = _score_tasks(answered, wanted)
    uncertainty = UncertaintyConfig(run.bootstrap_iters or 0, run.confidence, run.cluster)
    summary = with_clean_scores(
        summarize(scores, loaded["groups"], uncertainty, keep_samples=run.log_samples),
        scores,
        loaded["groups"],
        uncertainty,
        decontamination,
    )
    statistics: RunStatistics = {}
    if unanswered := unanswered_documents(loaded["tasks"], answered.numbers):
        statistics = {"partial": True, "unanswered_documents": unanswered}
    if programs is not None and programs.isolation:
        statistics["isolation"], statistics["programs"] = programs.isolation, programs.describe()
    return run, assemble(
        summary,
        statistics=statistics,
        description=describe_settings(run),
        scored_from=answered.origin,
    )


# -- answers from a run folder ----------------------------------------------------------------


def _load_from_run(
    stored: StoredRun,
    settings: Mapping[str, Any],
    wanted: Changes,
    shared: SharedRequests | None = None,
) -> _AnsweredTasks:
    """Returns the tasks of a stored run, with the answers from its store in their requests.

    `settings` are those of the record that may be used. Raises `DataError` if an answer is missing.
    """
    record = stored.record
    run = changed_settings(settings, wanted, stored.file)
    built = None if shared is None else shared.find(stored, run, wanted)
    if built is None:
        built = build_tasks(settings, run, wanted)
        if shared is not None:
            shared.keep(built, stored, run, wanted)
    state, hashes = record.state, built.hashes
    with AnswerStore(stored.answers, state["model"], read_only=True) as store:
        tasks = set_answers(run, stored, store, built.loaded["tasks"], hashes, wanted.unfinished)
    origin = {"run": str(stored.folder.path), "model_identity": state["model"], "hashes": hashes}
    loaded: TaskDict = {**built.loaded, "tasks": tasks}
    unanswered = {
        name: left
        for name, task in built.loaded["tasks"].items()
        if (left := _documents(task) - (_documents(tasks[name]) if name in tasks else 0))
    }
    return _AnsweredTasks(
        run,
        loaded,
        built.numbers,
        state.get("think_end_token"),
        origin,
        stored.folder.verdicts,
        unanswered,
    )


def _documents(task: Task) -> int:
    """Returns the number of documents with requests."""
    return len({request.doc_id for request in task.instances})


# -- answers from sample logs -----------------------------------------------------------------


def _load_from_logs(path: Path, wanted: Changes) -> _AnsweredTasks:
    """Returns the tasks of sample logs, with documents, requests and answers from the logs.

    Raises `OutputError` if there are no logs, and another `EvalError` if none of them can be used.
    """
    logged = load_from_logs(
        path, wanted.include_path, lambda settings: changed_settings(settings, wanted, path)
    )
    change_tasks(logged.loaded["tasks"], wanted)
    origin: dict[str, Any] = {"samples": logged.logs}
    if logged.not_scored:
        origin["not_scored"] = logged.not_scored
    return _AnsweredTasks(logged.run, logged.loaded, logged.numbers, origin=origin)
