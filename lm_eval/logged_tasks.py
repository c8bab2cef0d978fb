"""Builds tasks from sample logs: their documents, requests and answers are those of the log."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, cast

from lm_eval.api.instance import Instance, RequestType
from lm_eval.api.task import Task
from lm_eval.config.arguments import parse_arguments
from lm_eval.config.run import RunConfig
from lm_eval.errors import DataError, EvalError, OutputError
from lm_eval.preparation import prepare_tasks
from lm_eval.results.find_logs import find_logs, results_beside
from lm_eval.results.sample_log import RecordedDocument, read_answer, read_log
from lm_eval.runs.consent import is_task_path
from lm_eval.runs.folder import RECORD_FILE
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


@dataclass
class LoggedTasks:
    """The tasks of sample logs, whose requests have their answers.

    `run` are the settings of the run as far as they are known. `numbers` are the indices of the
    documents of each task. `logs` is the log of each task. `not_scored` are the logs that could not
    be used, with the reason.
    """

    run: RunConfig
    loaded: TaskDict
    numbers: dict[str, list[int]]
    logs: dict[str, str]
    not_scored: dict[str, str] = field(default_factory=dict)


def logs_of_tasks(path: Path, include_path: Sequence[str]) -> dict[str, Path]:
    """Returns a dictionary of task name to sample log (`find_logs`), for known names of tasks.

    `include_path` are additional folders with tasks.
    """

    @cache
    def index() -> Iterable[str]:
        return TaskManager(include_path=include_path).task_index

    return find_logs(path, lambda name: name in index())


def load_from_logs(
    path: Path, include_path: Sequence[str], configure: Callable[[dict[str, Any]], RunConfig]
) -> LoggedTasks:
    """Returns the tasks of the sample logs at `path`, a folder or one log.

    Settings come from the results files beside the logs, where they exist; `configure` makes them a
    `RunConfig`. `include_path` are additional folders with tasks. A log that cannot be read, or
    whose task does not exist, is reported and left out. Logs a warning if the results file reports
    another number of documents than the log has, or another version of the task.

    Raises `OutputError` if there are no logs, and the error of the first log if none can be used.
    """
    logs = logs_of_tasks(path, include_path)
    if not logs:
        raise OutputError(
            f"{path}: contains neither a run ({RECORD_FILE} and its answers) nor sample logs "
            "(samples_<task>_<time>.jsonl, which --log_samples writes). Give the --output_path of "
            "a run."
        )
    return _Loader(logs, configure).load()


class _Loader:
    """Loads the tasks of sample logs; each log is read once, when it is first needed."""

    def __init__(
        self, logs: Mapping[str, Path], configure: Callable[[dict[str, Any]], RunConfig]
    ) -> None:
        self.logs = logs
        self.results = results_beside(logs)
        beside = next(iter(self.results.values()))
        self._groups: Mapping[str, Sequence[str]] = beside.get("group_subtasks") or {}
        _check_names([*logs, *self._groups], next(iter(logs.values())).parent)
        self.run = configure(_settings(beside) | {"tasks": _names(logs, self._groups)})
        self._manager = TaskManager(
            include_path=self.run.include_path, metadata=self.run.task_metadata
        )
        self._recorded: dict[str, list[RecordedDocument]] = {}

    def load(self) -> LoggedTasks:
        """Returns the tasks of the run's `task_list`, without those that cannot be loaded."""
        names: Sequence[str] = self.run.task_list
        unusable: dict[str, EvalError] = {}
        try:
            loaded = self._load(names)
        except EvalError as error:
            chosen = names != _names(self.logs, self._groups)
            unusable = self._unusable(names if chosen else self.logs)
            usable = [name for name in (names if chosen else self.logs) if name not in unusable]
            if not usable or not unusable:
                raise next(iter(unusable.values()), error) from error
            loaded = self._load(usable if chosen else _names(usable, self._groups))
        for reason in unusable.values():
            logger.error("not scored: %s", reason)
        for name, task in loaded["tasks"].items():
            self._compare_with_results(name, task)
        return LoggedTasks(
            self.run,
            loaded,
            {name: [one.doc_id for one in self._recorded[name]] for name in loaded["tasks"]},
            {name: str(self.logs[name]) for name in loaded["tasks"]},
            {str(self.logs.get(name, name)): str(error) for name, error in unusable.items()},
        )

    def _unusable(self, names: Iterable[str]) -> dict[str, EvalError]:
        """Returns the error of each name that cannot be loaded by itself."""
        errors: dict[str, EvalError] = {}
        for name in names:
            try:
                self._load([name])
            except EvalError as error:
                errors[name] = error
        return errors

    def _load(self, names: Sequence[str]) -> TaskDict:
        """Returns tasks and groups, with the requests and answers of the logs.

        Raises an `EvalError` if one of them cannot be loaded. If it concerns one log, its message
        begins with that log.
        """
        log = self.logs.get(names[0]) if len(names) == 1 else None
        if log is not None:
            self._log_of(names[0])  # its errors concern the log, not the task
        try:
            loaded = self._manager.load(
                list(names), lambda name: [one.doc for one in self._log_of(name)]
            )
        except EvalError as error:
            if log is None:
                raise
            raise type(error)(f"{log}: {error}") from error
        prepare_tasks(self.run, loaded["tasks"])
        for name, task in loaded["tasks"].items():
            shots = (self._beside(name).get("n-shot") or {}).get(name)
            if isinstance(shots, int):
                task.set_config("num_fewshot", shots)
            task.set_requests(_requests(name, task, self._log_of(name), self.logs[name]))
        return loaded

    def _beside(self, name: str) -> dict[str, Any]:
        """Returns the results file beside the log of a task; empty if there is none."""
        return self.results.get(name, {})

    def _log_of(self, name: str) -> list[RecordedDocument]:
        """Returns the documents of a task's sample log.

        Raises `DataError` if the task has no log, or it cannot be read.
        """
        if name not in self._recorded:
            if name not in self.logs:
                folder = next(iter(self.logs.values())).parent
                raise DataError(
                    f"{folder}: there is no sample log of task {name!r}. There are logs of: "
                    f"{', '.join(self.logs)}. Choose from these with --tasks."
                )
            self._recorded[name] = read_log(self.logs[name])
        return self._recorded[name]

    def _compare_with_results(self, name: str, task: Task) -> None:
        """Logs a warning if the results file differs from the log or from the task.

        That is so if it reports another number of documents, or another version of the task.
        """
        results, log, count = self._beside(name), self.logs[name], len(self._log_of(name))
        expected = ((results.get("n-samples") or {}).get(name) or {}).get("effective")
        if isinstance(expected, int) and expected != count:
            logger.warning(
                "%s: contains %d documents, but the results file beside it reports %d. The log may "
                "be incomplete; its documents are scored.",
                log,
                count,
                expected,
            )
        version = _recorded_version(results, name)
        if version is not None and _number(version) != _number(task.VERSION):
            logger.warning(
                "%s: CAUTION: was written with version %s of task %s, but it is scored with "
                "version %s. Its prompts or its scoring have changed, so compare the scores with "
                "care.",
                log,
                version,
                name,
                task.VERSION,
            )


def _settings(results: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings of a run that the results file, which may be empty, has of it."""
    config = results.get("config") or {}
    settings = {"model": results.get("model_source") or config.get("model") or "recorded"}
    if config.get("bootstrap_iters") is not None:
        settings["bootstrap_iters"] = config["bootstrap_iters"]
    for name in ("model_args", "metadata"):
        if isinstance(config.get(name), (Mapping, str)):
            # The file may come from anyone, and tasks read the metadata: no code is trusted.
            given = parse_arguments(cast("Any", config[name]))
            settings[name] = {k: v for k, v in given.items() if k != "trust_remote_code"}
    return settings


def _check_names(names: Iterable[str], folder: Path) -> None:
    """Raises `DataError` if the name of a task or group in a log or results file is a path.

    Results files come from anyone, and loading a task file runs its code.
    """
    for name in names:
        if is_task_path(name):
            raise DataError(
                f"{folder}: {name!r} is a path, not the name of a task. Pass the folder of the "
                "task with --include_path, and correct the name in the results file."
            )


def _recorded_version(results: Mapping[str, Any], name: str) -> Any:
    """Returns the version of a task in a results file, or None.

    Version 0.4.0 wrote "Yaml" instead; the task's configuration then has the version, in metadata
    that may be a list of mappings.
    """
    version = (results.get("versions") or {}).get(name)
    if version not in (None, "Yaml"):
        return version
    metadata = ((results.get("configs") or {}).get(name) or {}).get("metadata")
    for one in metadata if isinstance(metadata, list) else [metadata]:
        if isinstance(one, Mapping) and "version" in one:
            return one["version"]
    return None


def _number(version: Any) -> Any:
    """Returns a version as a number, so that 1, 1.0 and "1.0" are the same, or as a string."""
    try:
        return float(version)
    except (TypeError, ValueError):
        return str(version)


def _names(logs: Iterable[str], subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """Returns the names to load: groups whose tasks all have logs, and the remaining tasks.

    A group inside another one of these is left out. `logs` are the names of tasks with logs,
    `subtasks` lists the members of each group, as the results file has them. Older versions list
    every task as a group without members.
    """
    groups = {name: members for name, members in subtasks.items() if members}

    def below(name: str) -> set[str]:
        return (
            {task for child in groups[name] for task in below(child)} if name in groups else {name}
        )

    whole = [name for name in groups if below(name) <= set(logs)]
    held = {task for name in whole for task in below(name)}
    inner = {child for name in whole for child in groups[name]}
    return [*(n for n in whole if n not in inner), *(n for n in logs if n not in held)]


def _requests(
    name: str, task: Task, recorded: Sequence[RecordedDocument], log: Path
) -> list[Instance]:
    """Returns the requests of a task as its log records them, with their answers.

    Their `doc_id` is the position of the document in the log, from 0. Raises `DataError` if the
    answers do not fit the output type of the task.
    """
    output = task.OUTPUT_TYPE
    kind = cast("RequestType", "loglikelihood" if output == "multiple_choice" else output)
    requests: list[Instance] = []
    for number, one in enumerate(recorded):
        try:
            for idx, (arguments, given) in enumerate(zip(one.arguments, one.resps, strict=True)):
                answers = [read_answer(kind, answer) for answer in given]
                about = (name, number, len(answers))
                request = Instance(kind, one.doc, arguments, idx, about, resps=answers)
                request.set_doc_number(one.doc_id)
                requests.append(request)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{log}: document {one.doc_id}: its answers are not valid answers to "
                f"{kind} requests ({error}). The output_type of task {name!r} is {output}; was the "
                "log written with another version of the task?"
            ) from error
    return requests
