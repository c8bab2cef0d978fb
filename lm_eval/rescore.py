"""Numbers from stored answers: the pipeline without its model.

Answers come from a run's folder, where the store keeps them, or from sample logs, ours or those of
the published harness. Tasks come from their files as they are now, so that a changed filter or
metric takes effect.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from lm_eval.api.instance import Failure, Instance, RequestType
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.data import mirror_at
from lm_eval.engine.keys import note_digests, request_keys
from lm_eval.engine.places import (
    continuation_hash,
    continuations_by_place,
    keys_by_place,
    tokens_by_place,
)
from lm_eval.engine.progress import stage
from lm_eval.engine.repeats import grouped, repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.errors import ConfigError, DataError, EvalError, OutputError, suggestion
from lm_eval.preparation import (
    check_run,
    chosen_documents,
    first_documents,
    load_tasks,
    prepare_tasks,
)
from lm_eval.results.assemble import assemble
from lm_eval.results.provenance import describe_settings
from lm_eval.results.sample_log import Recorded, find_logs, read_answer, read_log, results_beside
from lm_eval.results.schema import EvalResults
from lm_eval.results.summarise import UncertaintyConfig, summarise
from lm_eval.runs.folder import NAME
from lm_eval.runs.hashes import config_hash, task_hashes
from lm_eval.runs.record import RunRecord, changes
from lm_eval.runs.stored import StoredRun, choose_runs, find_runs, the_run
from lm_eval.scoring import TaskScores
from lm_eval.scoring import answered as answered_tasks
from lm_eval.scoring import score as score_task
from lm_eval.tasks.manager import TaskDict, TaskManager

logger = logging.getLogger(__name__)


@dataclass
class Changes:
    """What is to be other than it was when the answers were given; None leaves it as it was."""

    tasks: Sequence[str] | None = None
    filters: Sequence[Any] | None = None
    metrics: Sequence[str] | None = None
    include_path: Sequence[str] = ()
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Makes paths absolute: scoring goes to the directory of the run."""
        self.include_path = [str(Path(folder).absolute()) for folder in self.include_path]
        if data_dir := self.settings.get("data_dir"):
            absolute = str(Path(data_dir).expanduser().absolute())
            self.settings = {**self.settings, "data_dir": absolute}


@dataclass
class _Answered:
    """Tasks whose requests hold their answers, and what else scoring needs to know."""

    run: RunConfig
    loaded: TaskDict
    numbers: Mapping[str, Sequence[int]]
    think_end_token: Any = None
    origin: dict[str, Any] = field(default_factory=dict)


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
        folder: a run's folder, where its `output_path` pointed, or sample logs.
        run: the id of the run, where there are several; the error that asks for it lists them.
        tasks: score these tasks alone.
        filters: filter pipelines to apply instead of the tasks' own: their names, or tables as in
            a task file's `filter_list`.
        metrics: report these metrics alone.
        include_path: folders of further tasks.
        log_samples: return every document with its answers and scores under `samples`.
        settings: other settings of the run that scoring uses: `bootstrap_iters`, `confidence`,
            `cluster`, `data_dir`, `confirm_run_unsafe_code`.
    """
    allowed = ("bootstrap_iters", "confidence", "cluster", "data_dir", "confirm_run_unsafe_code")
    for name in settings:
        if name not in allowed:
            raise TypeError(f"score: there is no setting {name!r}.{suggestion(name, allowed)}")
    wanted = Changes(
        tasks=[tasks] if isinstance(tasks, str) else tasks,
        filters=[filters] if isinstance(filters, (str, dict)) else filters,
        metrics=[metrics] if isinstance(metrics, str) else metrics,
        include_path=[include_path] if isinstance(include_path, str) else include_path or (),
        settings={**settings, "log_samples": log_samples},
    )
    sources = find_sources(folder, wanted, run)
    if len(sources) > 1:
        the_run([source.run for source in sources if source.run is not None], folder)
    return rescore(sources[0])[1]


@dataclass(frozen=True)
class Source:
    """Stored answers to be scored: those of a run, or of sample logs where there is no run."""

    path: Path
    wanted: Changes
    run: StoredRun | None = None


def find_sources(path: str | Path, wanted: Changes, run_id: str | None = None) -> list[Source]:
    """Returns what there is to score at a path: every run that asked for one of the tasks.

    Where tasks are named, each run is scored on those of them that it asked for.
    """
    root = Path(path).absolute()
    if not root.exists():
        raise OutputError(f"{root}: there is no such file or folder.")
    runs = [the_run(choose_runs(root, run_id), root)] if run_id is not None else find_runs(root)
    # Without the store, sample logs may still hold the answers.
    usable = [run for run in runs if run.answers.is_file()]
    if not usable and (not runs or find_logs(root)):
        return [Source(root, wanted)]
    usable = usable or runs
    if wanted.tasks is None:
        return [Source(root, wanted, run) for run in usable]
    sources = []
    for run in usable:
        names = _asked_there(run.record, wanted.tasks)
        if names:
            sources.append(Source(root, replace(wanted, tasks=names), run))
    # A group, a tag or a file may stand for tasks of a run without being named in it.
    return sources or [Source(root, wanted, run) for run in usable]


def _asked_there(record: RunRecord, names: Sequence[str]) -> list[str]:
    """Returns the tasks that a run asked for, of those named; patterns are resolved."""
    found: dict[str, None] = {}
    for name in names:
        matching = record.matching(name)
        found |= dict.fromkeys(matching or ([name] if record.asked_for(name) else []))
    return list(found)


@numpy_on_one_thread()
@stage("Scoring stored answers")
def rescore(source: Source) -> tuple[RunConfig, EvalResults]:
    """Scores stored answers again; returns the settings they were asked with, and the results."""
    wanted = source.wanted
    if source.run is None:
        return _score(_of_logs(source.path, wanted), wanted)
    recorded = source.run.record.config(source.run.file)
    with source.run.where_it_was_run(with_model=False), recorded.in_environment():
        return _score(_of_run(source.run, wanted), wanted)


def _score(answered: _Answered, wanted: Changes) -> tuple[RunConfig, EvalResults]:
    run, loaded = answered.run, answered.loaded
    check_run(run, loaded["tasks"])
    scores: dict[str, TaskScores] = {}
    for name, task in answered_tasks(loaded["tasks"]).items():
        scored = score_task(task, answered.numbers.get(name), answered.think_end_token)
        if wanted.metrics is not None:
            _keep_metrics(scored)
        scores[name] = scored
    doubt = UncertaintyConfig(run.bootstrap_iters, run.confidence, run.cluster)
    summary = summarise(scores, loaded["groups"], doubt, keep_samples=run.log_samples)
    return run, assemble(summary, description=describe_settings(run), scored_from=answered.origin)


def _keep_metrics(scored: TaskScores) -> None:
    """A task's own function may give more values than were asked for."""
    known = scored.task.aggregation()
    for pipeline, columns in scored.pipelines.items():
        scored.pipelines[pipeline] = {m: column for m, column in columns.items() if m in known}


def _change_tasks(tasks: Mapping[str, Task], wanted: Changes) -> None:
    for name, task in tasks.items():
        try:
            if wanted.filters is not None:
                task.override_filters(_pipelines(task, wanted.filters))
            if wanted.metrics is not None:
                task.override_metrics(wanted.metrics)
        except ConfigError as error:
            told = str(error)
            raise ConfigError(told if repr(name) in told else f"task {name!r}: {told}") from error


def _pipelines(task: Task, wanted: Sequence[Any]) -> list[dict[str, Any]]:
    """The pipelines asked for: the task's own by name, others as they are written."""
    default: list[dict[str, Any]] = [{"name": "none", "filter": [{"function": "take_first"}]}]
    written: list[dict[str, Any]] = task.get_config("filter_list") or default
    own = {str(pipeline["name"]): pipeline for pipeline in written}
    pipelines = []
    for one in wanted:
        if isinstance(one, str) and one not in own:
            raise ConfigError(
                f"there is no filter pipeline {one!r}.{suggestion(one, own)} It has: "
                f"{', '.join(own)}. A new one is given as YAML, or as a file of it; --tasks names "
                "the tasks to be scored, where only some have it."
            )
        pipelines.append(own[one] if isinstance(one, str) else one)
    return pipelines


# -- a run's folder ---------------------------------------------------------------------------


def _of_run(stored: StoredRun, wanted: Changes) -> _Answered:
    record = stored.record
    run = _settings(record.settings, wanted, stored.file)
    manager = TaskManager(include_path=run.include_path, metadata=run.metadata_of_tasks)
    with mirror_at(run.data_dir):
        loaded = _as_asked(run, record.settings.get("tasks"), manager)
        tasks = loaded["tasks"]
        written = {name: config_hash(task) for name, task in tasks.items()}
        _change_tasks(tasks, wanted)
        numbers = chosen_documents(run, tasks)
        for name, task in tasks.items():
            task.build_all_requests(
                limit=first_documents(run, task),
                samples=numbers.get(name),
                system_instruction=run.system_instruction,
            )
            note_digests(task.instances)
        hashes = {
            name: {**task_hashes(task, task.describe_data()), "config": written[name]}
            for name, task in tasks.items()
        }
    state = record.state
    with AnswerStore(stored.answers, state["model"], read_only=True) as store:
        _find_answers(run, stored, store, tasks, hashes)
    origin = {"run": str(stored.folder.path), "model_identity": state["model"], "hashes": hashes}
    return _Answered(run, loaded, numbers, state.get("think_end_token"), origin)


def _as_asked(run: RunConfig, before: Any, manager: TaskManager) -> TaskDict:
    """The tasks to be scored, as the run had them: a group may set what is not in their files."""
    wanted = run.task_list
    if wanted == replace(run, tasks=before).task_list:
        return load_tasks(run, manager)
    try:
        whole = load_tasks(replace(run, tasks=before), manager)
    except EvalError:  # some of the others may be gone by now
        return load_tasks(run, manager)
    if not all(name in whole["tasks"] or name in whole["groups"] for name in wanted):
        return load_tasks(run, manager)

    def below(name: str) -> set[str]:
        return {name}.union(*(below(child) for child in whole["group_map"].get(name, ())))

    chosen: set[str] = set().union(*map(below, wanted))
    return TaskDict(
        tasks={name: task for name, task in whole["tasks"].items() if name in chosen},
        groups={name: group for name, group in whole["groups"].items() if name in chosen},
        group_map={name: held for name, held in whole["group_map"].items() if name in chosen},
    )


def _settings(recorded: Mapping[str, Any], wanted: Changes, where: Path) -> RunConfig:
    """The run's settings with the changes; what was only predicted is scored now."""
    settings = {**recorded, **wanted.settings, "predict_only": False}
    settings["log_samples"] = bool(wanted.settings.get("log_samples"))
    if wanted.tasks is not None:
        settings["tasks"] = list(wanted.tasks)
    if wanted.include_path:
        before = settings.get("include_path") or []
        before = [before] if isinstance(before, str) else list(before)
        before = [folder for folder in before if Path(folder).is_dir()]  # it may have been moved
        settings["include_path"] = [*before, *wanted.include_path]
    return RunConfig.from_record(settings, where)


def _find_answers(
    run: RunConfig,
    stored: StoredRun,
    store: AnswerStore,
    tasks: Mapping[str, Task],
    hashes: Mapping[str, Mapping[str, str]],
) -> None:
    """Put the stored answers into the requests, found by what was asked, else by document.

    By document only where the data is what it was: another document may have its number by now.
    """
    before, folder = stored.record.tasks, stored.folder
    if stored.record.settings.get("predict_only"):  # its metrics were taken out for the time
        before = {n: {**old, "config": hashes.get(n, old)["config"]} for n, old in before.items()}
    index = folder.answer_index(stored.record)
    for change in changes({"tasks": before}, {"model": None, "tasks": hashes}):
        logger.warning("%s: %s.", folder.path, change)
    for name, task in tasks.items():
        same_data = before.get(name, {}).get("data") == hashes[name]["data"]
        places = index.get(name) if same_data else None
        found = _by_request(task.instances, store, run) if not run.apply_chat_template else {}
        elsewhere = 0
        if len(found) < len(task.instances) and places is not None:
            keys, scored = keys_by_place(places), continuations_by_place(places)
            for number, request in enumerate(task.instances):
                at = (request.doc_id or 0, request.idx)
                if scored.get(at, 0) not in (0, continuation_hash(request)):
                    continue  # another choice has this place by now
                answers = _answers_or_failures(store, keys.get(at, ()))
                if number not in found and answers and MISSING not in answers:
                    found[number] = answers
                    elsewhere += 1
        if elsewhere and not run.apply_chat_template:
            logger.warning(
                "task %s: %d of its requests read otherwise now; the answers are those to what "
                "was asked then.",
                name,
                elsewhere,
            )
        if len(found) < len(task.instances):
            raise DataError(
                _not_found(name, len(task.instances), len(found), name in before, folder.path)
            )
        for number, request in enumerate(task.instances):
            request.set_answers(found[number])
        tokens = tokens_by_place(index[name]) if name in index else {}
        for request in task.instances if tokens else ():
            request.set_tokens(tokens.get((request.doc_id or 0, request.idx)))


def _by_request(
    requests: Sequence[Instance], store: AnswerStore, run: RunConfig
) -> dict[int, list[Any]]:
    """The answers to exactly these requests, by the number of the request, where all are there."""
    keys = request_keys(repeated(requests), run.seed.of_model)
    by_request = enumerate(grouped(requests, _answers_or_failures(store, keys)))
    return {number: own for number, own in by_request if MISSING not in own}


def _answers_or_failures(store: AnswerStore, keys: Sequence[bytes | None]) -> list[Any]:
    """Returns the stored answers, and a `Failure` for each request that is known to have failed."""
    return [
        Failure(reason) if given is MISSING and (reason := store.failure(key)) else given
        for key, given in zip(keys, store.find(keys), strict=True)
    ]


def _not_found(name: str, asked: int, found: int, was_run: bool, folder: Path) -> str:
    if not was_run:
        return f"{folder}: task {name!r} was not part of the run there; there are no answers."
    return (
        f"{folder}: of {asked} requests of task {name!r}, {asked - found} have no stored "
        f"answer. If the run was cut off, `lm-eval resume {folder}` asks for the rest; if "
        "the task's data was changed since, score it with the data it was run on."
    )


# -- sample logs ------------------------------------------------------------------------------


def _of_logs(path: Path, wanted: Changes) -> _Answered:
    logs = find_logs(path)
    if not logs:
        raise OutputError(
            f"{path}: holds neither a run ({NAME} and its answers) nor sample logs "
            "(samples_<task>_<time>.jsonl, which --log_samples writes)."
        )
    results = results_beside(logs)
    beside = next(iter(results.values()))
    config = beside.get("config") or {}
    settings = {"model": beside.get("model_source") or config.get("model") or "recorded"}
    if config.get("bootstrap_iters") is not None:
        settings["bootstrap_iters"] = config["bootstrap_iters"]
    for name in ("model_args", "metadata"):
        if isinstance(config.get(name), (Mapping, str)):
            settings[name] = config[name]
    settings["tasks"] = _names(logs, beside.get("group_subtasks") or {})
    run = _settings(settings, wanted, path)
    recorded: dict[str, list[Recorded]] = {}

    def documents(name: str) -> list[Any]:
        return [one.doc for one in _log_of(name, logs, recorded)]

    manager = TaskManager(include_path=run.include_path, metadata=run.metadata_of_tasks)
    loaded = manager.load(run.task_list, documents)
    prepare_tasks(run, loaded["tasks"])
    for name, task in loaded["tasks"].items():
        told = _log_of(name, logs, recorded)
        shots = (results[name].get("n-shot") or {}).get(name)
        if isinstance(shots, int):
            task.set_config("num_fewshot", shots)
        asked = ((results[name].get("n-samples") or {}).get(name) or {}).get("effective")
        if isinstance(asked, int) and asked != len(told):
            logger.warning(
                "%s: holds %d documents; the results beside it are of %d.",
                logs[name],
                len(told),
                asked,
            )
        task.set_requests(_requests(name, task, told, logs))
    _change_tasks(loaded["tasks"], wanted)
    numbers = {name: [one.doc_id for one in recorded[name]] for name in loaded["tasks"]}
    used = {name: str(logs[name]) for name in loaded["tasks"] if name in logs}
    return _Answered(run, loaded, numbers, origin={"samples": used})


def _names(logs: Mapping[str, Path], subtasks: Mapping[str, Sequence[str]]) -> list[str]:
    """What to load: the groups whose tasks are all logged, and the tasks of none."""

    def below(name: str) -> set[str]:
        return (
            {task for child in subtasks[name] for task in below(child)}
            if name in subtasks
            else {name}
        )

    whole = [name for name in subtasks if below(name) <= set(logs)]
    held = {task for name in whole for task in below(name)}
    inner = {child for name in whole for child in subtasks[name]}
    return [*(n for n in whole if n not in inner), *(n for n in logs if n not in held)]


def _log_of(
    name: str, logs: Mapping[str, Path], recorded: dict[str, list[Recorded]]
) -> list[Recorded]:
    if name not in recorded:
        if name not in logs:
            raise DataError(f"task {name!r} has no sample log there; there are: {', '.join(logs)}.")
        recorded[name] = read_log(logs[name])
    return recorded[name]


def _requests(
    name: str, task: Task, recorded: Sequence[Recorded], logs: Mapping[str, Path]
) -> list[Instance]:
    """The requests as the log has them, with their answers."""
    output = task.OUTPUT_TYPE
    kind = cast("RequestType", "loglikelihood" if output == "multiple_choice" else output)
    requests: list[Instance] = []
    for number, one in enumerate(recorded):
        try:
            for idx, (asked, given) in enumerate(zip(one.arguments, one.resps, strict=True)):
                answers = [read_answer(kind, answer) for answer in given]
                about = (name, number, len(answers))
                requests.append(Instance(kind, one.doc, asked, idx, about, resps=answers))
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{logs[name]}: document {one.doc_id}: its answers are none to {kind} ({error}); "
                f"the output_type of task {name!r} is {output}."
            ) from error
    return requests
