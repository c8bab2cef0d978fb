"""Builds the requests of a stored run again, with the changes that its scoring asks for.

The tasks are loaded from their current files. Runs that differ only in their answers can share the
requests (`SharedRequests`).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig, absolute_path
from lm_eval.data import mirror_at
from lm_eval.engine.keys import set_digests
from lm_eval.errors import ConfigError, EvalError, suggestion
from lm_eval.filters import absolute_paths
from lm_eval.preparation import chosen_documents, document_limit, load_tasks
from lm_eval.results.serialize import hash_json
from lm_eval.runs.hashes import config_hash, task_hashes
from lm_eval.runs.stored import StoredRun
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


def change_tasks(tasks: Mapping[str, Task], wanted: Changes) -> None:
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


@dataclass(frozen=True)
class BuiltTasks:
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
    _built: BuiltTasks | None = None

    def find(self, stored: StoredRun, run: RunConfig, wanted: Changes) -> BuiltTasks | None:
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

    def keep(self, built: BuiltTasks, stored: StoredRun, run: RunConfig, wanted: Changes) -> None:
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


def build_tasks(settings: Mapping[str, Any], run: RunConfig, wanted: Changes) -> BuiltTasks:
    """Returns the tasks of a stored run with their requests.

    `settings` are those of its record that may be used.
    """
    manager = TaskManager(include_path=run.include_path, metadata=run.task_metadata)
    with mirror_at(run.data_dir):
        loaded = _load_as_in_run(run, settings.get("tasks"), manager)
        tasks = loaded["tasks"]
        written = {name: config_hash(task) for name, task in tasks.items()}
        change_tasks(tasks, wanted)
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
    return BuiltTasks(loaded, numbers, hashes)


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


def changed_settings(recorded: Mapping[str, Any], wanted: Changes, where: Path) -> RunConfig:
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
