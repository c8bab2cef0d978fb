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
from lm_eval.api.instance import Failure, Instance
from lm_eval.api.task import Task
from lm_eval.code_scoring import code_session
from lm_eval.config.run import RunConfig, absolute_path
from lm_eval.contamination.findings import read_findings
from lm_eval.data import mirror_at
from lm_eval.engine.answer_index import (
    continuation_hash,
    continuations_by_position,
    keys_by_position,
    tokens_by_position,
)
from lm_eval.engine.gc_pause import gc_paused
from lm_eval.engine.keys import request_keys, set_digests
from lm_eval.engine.progress import stage
from lm_eval.engine.repeats import grouped, repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.errors import ConfigError, DataError, EvalError, OutputError, suggestion
from lm_eval.filters import absolute_paths
from lm_eval.logged_tasks import load_from_logs
from lm_eval.preparation import check_run, chosen_documents, document_limit, load_tasks
from lm_eval.results.assemble import assemble
from lm_eval.results.clean_scores import contaminated_documents, with_clean_scores
from lm_eval.results.find_logs import find_logs
from lm_eval.results.provenance import describe_settings
from lm_eval.results.schema import EvalResults, RunStatistics
from lm_eval.results.serialize import hash_json
from lm_eval.results.summarize import UncertaintyConfig, summarize
from lm_eval.runs.consent import Consent
from lm_eval.runs.hashes import config_hash, task_hashes
from lm_eval.runs.record import RunRecord, changes
from lm_eval.runs.stored import StoredRun, choose_runs, find_runs, only_run
from lm_eval.scoring import TaskScores, unanswered_documents
from lm_eval.scoring import answered as answered_tasks
from lm_eval.scoring import score as score_task
from lm_eval.tasks.configurable import ConfigurableTask
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


@dataclass
class Changes:
    """Settings to change when stored answers are scored again; None leaves a setting unchanged.

    Attributes:
        tasks: score only these tasks.
        filters: filter pipelines to apply: names of pipelines of the task, or mappings.
        metrics: report only these metrics.
        include_path: additional folders with tasks.
        settings: other settings of the run, by the names of `RunConfig`.
        unfinished: whether to score the documents that have all their answers in tasks where others
            lack some; otherwise these tasks are an error.
    """

    tasks: Sequence[str] | None = None
    filters: Sequence[Any] | None = None
    metrics: Sequence[str] | None = None
    include_path: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)
    unfinished: bool = False

    def __post_init__(self) -> None:
        """Makes paths absolute, because scoring changes to the working directory of the run."""
        self.include_path = [str(Path(folder).absolute()) for folder in self.include_path]
        if self.filters is not None:
            self.filters = absolute_paths(list(self.filters), None)
        for name in ("data_dir", "decontaminate"):
            if path := self.settings.get(name):
                self.settings = {**self.settings, name: absolute_path(path)}


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


def _change_tasks(tasks: Mapping[str, Task], wanted: Changes) -> None:
    """Replaces the filters and metrics of tasks, if `wanted` sets them.

    Raises `ConfigError`, with the name of the task, if a pipeline or metric does not exist.
    """
    for name, task in tasks.items():
        advice = ""
        try:
            if wanted.filters is not None:
                task.override_filters(_pipelines(task, wanted.filters))
            if wanted.metrics is not None:
                if len(tasks) > 1:
                    advice = " Select the tasks that the metrics suit with --tasks."
                task.override_metrics(wanted.metrics)
        except ConfigError as error:
            message = str(error)
            if repr(name) not in message:
                message = f"task {name!r}: {message}"
            raise ConfigError(f"{message}{advice}") from error


def _pipelines(task: Task, wanted: Sequence[Any]) -> list[dict[str, Any]]:
    """Returns the filter pipelines in `wanted`: the task's own by name, mappings unchanged.

    A task without filters has a pipeline "none". Raises `ConfigError` if the task has no pipeline
    of a name.
    """
    default: list[dict[str, Any]] = [{"name": "none", "filter": [{"function": "take_first"}]}]
    written: list[dict[str, Any]] = task.get_config("filter_list") or default
    own = {str(pipeline["name"]): pipeline for pipeline in written}
    pipelines = []
    for one in wanted:
        if isinstance(one, str) and one not in own:
            raise ConfigError(
                f"there is no filter pipeline {one!r}.{suggestion(one, own)} The task has: "
                f"{', '.join(own)}. To define a new pipeline, pass it as YAML, or the name of a "
                "YAML file. If only some tasks have the pipeline, select them with --tasks."
            )
        pipelines.append(own[one] if isinstance(one, str) else one)
    return pipelines


# -- answers from a run folder ----------------------------------------------------------------


@dataclass(frozen=True)
class _BuiltTasks:
    """Tasks with their requests, before answers are set.

    `numbers` are the indices of the documents of each task, if not all were evaluated; `hashes` are
    those of `task_hashes`.
    """

    loaded: TaskDict
    numbers: Mapping[str, Sequence[int]]
    hashes: Mapping[str, Mapping[str, str]]


@dataclass
class SharedRequests:
    """The requests of one run, to score the answers of others to the same requests.

    Runs that were made with the same tasks and settings differ only in their answers. Building
    their requests once saves most of the time. The scores of a run must have been read from the
    requests before the next one is scored.
    """

    _key: str = ""
    _built: _BuiltTasks | None = None

    def find(self, stored: StoredRun, run: RunConfig, wanted: Changes) -> _BuiltTasks | None:
        """Returns the requests for a run, without answers; None if its requests may differ."""
        if self._built is None or self._key != _requests_key(stored, run, wanted):
            return None
        tasks = self._built.loaded["tasks"]
        hashes = dict(self._built.hashes)
        for name, task in tasks.items():
            metadata = {**(task.get_config("metadata") or {}), **run.task_metadata}
            hashes[name] = {**hashes[name], "config": config_hash(task, metadata)}
            for request in task.instances:
                request.forget_answers()
        return replace(self._built, hashes=hashes)

    def keep(self, built: _BuiltTasks, stored: StoredRun, run: RunConfig, wanted: Changes) -> None:
        """Keeps requests for the next run, unless a class of a task may depend on the model."""
        plain = all(type(task) is ConfigurableTask for task in built.loaded["tasks"].values())
        self._built = built if plain and wanted.metrics is None and wanted.filters is None else None
        self._key = _requests_key(stored, run, wanted)


#: Settings of a run that do not change its requests. Model arguments are metadata of tasks; their
#: effect is in the hashes of data and prompts.
_ONLY_ANSWERS = {
    *("model", "model_args", "metadata", "seed", "output_path", "use_cache", "log_samples"),
    *("batch_size", "max_batch_size", "device", "bootstrap_iters"),
}


def _requests_key(stored: StoredRun, run: RunConfig, wanted: Changes) -> str:
    """Returns a hash of all that the requests of a run depend on."""
    record = stored.record
    hashes = {
        name: {key: one.get(key) for key in ("data", "prompts", "documents")}
        for name, one in record.tasks.items()
    }
    settings = {k: v for k, v in record.settings.items() if k not in _ONLY_ANSWERS}
    chosen = [wanted.tasks, wanted.include_path, wanted.settings]
    metadata = sorted(run.task_metadata)
    return hash_json([hashes, settings, run.seed.fewshot, record.directory, metadata, chosen])


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
    run = _settings(settings, wanted, stored.file)
    built = None if shared is None else shared.find(stored, run, wanted)
    if built is None:
        built = _build_tasks(settings, run, wanted)
        if shared is not None:
            shared.keep(built, stored, run, wanted)
    state, hashes = record.state, built.hashes
    with AnswerStore(stored.answers, state["model"], read_only=True) as store:
        tasks = _set_answers(run, stored, store, built.loaded["tasks"], hashes, wanted.unfinished)
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


def _build_tasks(settings: Mapping[str, Any], run: RunConfig, wanted: Changes) -> _BuiltTasks:
    """Returns the tasks of a stored run with their requests.

    `settings` are those of its record that may be used.
    """
    manager = TaskManager(include_path=run.include_path, metadata=run.task_metadata)
    with mirror_at(run.data_dir):
        loaded = _load_as_in_run(run, settings.get("tasks"), manager)
        tasks = loaded["tasks"]
        written = {name: config_hash(task) for name, task in tasks.items()}
        _change_tasks(tasks, wanted)
        numbers = chosen_documents(run, tasks)
        for name, task in tasks.items():
            task.build_all_requests(
                limit=document_limit(task, run.limit),
                samples=numbers.get(name),
                system_instruction=run.system_instruction,
            )
            set_digests(task.instances)
        hashes = {
            name: {**task_hashes(task, task.describe_data()), "config": written[name]}
            for name, task in tasks.items()
        }
    return _BuiltTasks(loaded, numbers, hashes)


def _load_as_in_run(run: RunConfig, before: Any, manager: TaskManager) -> TaskDict:
    """Returns the tasks to score, loaded in the way the run loaded them.

    A group can change settings of its tasks. So, to score only some tasks of a run, this loads all
    tasks and groups that the run was started with (`before`) and selects the tasks from them. If
    that fails, it loads only the tasks to score.
    """
    wanted = run.task_list
    if wanted == replace(run, tasks=before).task_list:
        return load_tasks(run, manager)
    try:
        whole = load_tasks(replace(run, tasks=before), manager)
    except EvalError:  # files of the other tasks may have been deleted since
        return load_tasks(run, manager)
    if not all(name in whole["tasks"] or name in whole["groups"] for name in wanted):
        return load_tasks(run, manager)

    chosen: set[str] = set()
    waiting = list(wanted)
    while waiting:
        name = waiting.pop()
        if name not in chosen:
            chosen.add(name)
            waiting += whole["group_map"].get(name, ())
    return TaskDict(
        tasks={name: task for name, task in whole["tasks"].items() if name in chosen},
        groups={name: group for name, group in whole["groups"].items() if name in chosen},
        group_map={name: held for name, held in whole["group_map"].items() if name in chosen},
    )


def _settings(recorded: Mapping[str, Any], wanted: Changes, where: Path) -> RunConfig:
    """Returns the recorded settings of a run with the changes applied, and `predict_only` off.

    `log_samples` is off unless `wanted` sets it, and recorded `include_path` folders that no longer
    exist are left out if `wanted` adds others. `where` is the file of the record, for error
    messages. Raises `ConfigError` if the settings are not valid.
    """
    settings = {**recorded, **wanted.settings, "predict_only": False}
    settings["log_samples"] = bool(wanted.settings.get("log_samples"))
    findings = settings.get("decontaminate")
    if findings and "decontaminate" not in wanted.settings and not Path(findings).is_file():
        logger.warning(
            "the run was decontaminated with %s, which no longer exists, so there are no clean "
            "scores. If the file was moved, pass it with --decontaminate.",
            findings,
        )
        del settings["decontaminate"]
    if wanted.tasks is not None:
        settings["tasks"] = list(wanted.tasks)
    if wanted.include_path:
        before = settings.get("include_path") or []
        before = [before] if isinstance(before, str) else list(before)
        before = [folder for folder in before if Path(folder).is_dir()]  # may have been moved
        settings["include_path"] = [*before, *wanted.include_path]
    return RunConfig.from_record(settings, where)


def _set_answers(
    run: RunConfig,
    stored: StoredRun,
    store: AnswerStore,
    tasks: Mapping[str, Task],
    hashes: Mapping[str, Mapping[str, str]],
    unfinished: bool,
) -> dict[str, Task]:
    """Sets the stored answers of all requests, and returns the tasks.

    Raises `DataError` if a task lacks answers. If `unfinished` is set, a task is returned without
    the documents that lack some, and a task without any answer only raises if no other is left.

    An answer is found by the exact request. If that fails, for example because the prompt has
    changed since, it is found by the position of the document, but only if the data of the task is
    unchanged.
    """
    before, folder = stored.record.tasks, stored.folder
    if stored.record.settings.get("predict_only"):  # its metrics were removed
        before = {n: {**old, "config": hashes.get(n, old)["config"]} for n, old in before.items()}
    index = folder.answer_index(stored.record)
    complete: dict[str, Task] = {}
    without: list[str] = []
    for change in changes({"tasks": before}, {"model": None, "tasks": hashes}):
        logger.warning("%s: %s.", folder.path, change)
    for name, task in tasks.items():
        same_data = before.get(name, {}).get("data") == hashes[name]["data"]
        task_index = index.get(name) if same_data else None
        found = (
            _find_exact_requests(task.instances, store, run) if not run.apply_chat_template else {}
        )
        changed = 0
        if len(found) < len(task.instances) and task_index is not None:
            keys = keys_by_position(task_index)
            scored = continuations_by_position(task_index)
            for number, request in enumerate(task.instances):
                at = (request.doc_id or 0, request.idx)
                if scored.get(at, 0) not in (0, continuation_hash(request)):
                    continue  # the choices have changed since
                answers = _answers_or_failures(store, keys.get(at, ()))
                if number not in found and answers and MISSING not in answers:
                    found[number] = answers
                    changed += 1
        if changed and not run.apply_chat_template:
            logger.warning(
                "task %s: %d of its requests have changed since the run; the answers to the "
                "original requests are scored.",
                name,
                changed,
            )
        for number, answers in found.items():
            task.instances[number].set_answers(answers)
        tokens = tokens_by_position(index[name]) if name in index else {}
        for request in task.instances if tokens else ():
            request.set_tokens(tokens.get((request.doc_id or 0, request.idx)))
        if len(found) == len(task.instances):
            complete[name] = task
            continue
        missing = _missing_answers_message(
            name, len(task.instances), len(found), name in before, folder.path
        )
        lacking = {
            request.doc_id for number, request in enumerate(task.instances) if number not in found
        }
        left = [request for request in task.instances if request.doc_id not in lacking]
        if not unfinished:
            raise DataError(missing)
        if left:
            complete[name] = task.with_requests(left)
        else:
            without.append(missing)
    if without and not complete:
        raise DataError(without[0])
    for missing in without:
        logger.warning("a task is left out: %s", missing)
    return complete


def _find_exact_requests(
    requests: Sequence[Instance], store: AnswerStore, run: RunConfig
) -> dict[int, list[Any]]:
    """Returns the stored answers of requests, by the index of the request in `requests`.

    Leaves out requests of which an answer to any repeat is missing.
    """
    keys = request_keys(repeated(requests), run.seed.model_seeds)
    by_request = enumerate(grouped(requests, _answers_or_failures(store, keys)))
    return {number: own for number, own in by_request if MISSING not in own}


def _answers_or_failures(store: AnswerStore, keys: Sequence[bytes | None]) -> list[Any]:
    """Returns the stored answer for each key, or a `Failure` if a failure is stored.

    Keys without either, and keys that are None, get `MISSING`.
    """
    return [
        Failure(reason) if given is MISSING and (reason := store.failure(key)) else given
        for key, given in zip(keys, store.find(keys), strict=True)
    ]


def _missing_answers_message(name: str, total: int, found: int, was_run: bool, folder: Path) -> str:
    """Returns the error message for a task with missing answers.

    `total` and `found` are numbers of requests; `was_run` is whether the run included the task.
    """
    if not was_run:
        return (
            f"{folder}: task {name!r} was not part of the run there, so it has no stored answers."
        )
    return (
        f"{folder}: of {total} requests of task {name!r}, {total - found} have no stored "
        f"answer. If the run was interrupted, `lm-eval resume {folder}` gets the remaining "
        "answers. If the task's data has changed since, score it with the original data."
    )


# -- answers from sample logs -----------------------------------------------------------------


def _load_from_logs(path: Path, wanted: Changes) -> _AnsweredTasks:
    """Returns the tasks of sample logs, with documents, requests and answers from the logs.

    Raises `OutputError` if there are no logs, and another `EvalError` if none of them can be used.
    """
    logged = load_from_logs(
        path, wanted.include_path, lambda settings: _settings(settings, wanted, path)
    )
    _change_tasks(logged.loaded["tasks"], wanted)
    origin: dict[str, Any] = {"samples": logged.logs}
    if logged.not_scored:
        origin["not_scored"] = logged.not_scored
    return _AnsweredTasks(logged.run, logged.loaded, logged.numbers, origin=origin)
