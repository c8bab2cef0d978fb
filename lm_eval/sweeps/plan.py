"""What is left to do of a sweep: finished runs, and counts of requests and stored answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lm_eval.api.model import LM
from lm_eval.data import mirror_at
from lm_eval.engine.keys import KEY_SIZE, request_keys, set_digests
from lm_eval.engine.repeats import repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import EvalError, OutputError
from lm_eval.markdown import table
from lm_eval.models.create import check_model
from lm_eval.models.identity import fingerprint
from lm_eval.preparation import build_requests, check_run, chosen_documents, load_tasks
from lm_eval.results.provenance import model_name
from lm_eval.results.reader import read_results
from lm_eval.runs.folder import RunFolder
from lm_eval.runs.record import RunRecord, run_id
from lm_eval.sweeps.jobs import Job
from lm_eval.sweeps.matrix import SweepRun
from lm_eval.tasks.manager import TaskManager


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep before it starts.

    Attributes:
        run: the run.
        finished: the results file of an earlier start; None if it is not finished.
        requests: the number of its requests; None if they were not counted.
        stored: how many of their answers are stored; None if that is not known without the model.
        gpus: how many GPUs its model needs.
    """

    run: SweepRun
    finished: Path | None = None
    requests: int | None = None
    stored: int | None = None
    gpus: int = 0


def folder_of(run: SweepRun) -> RunFolder:
    """Returns the folder of a run."""
    assert run.config.output_path is not None
    return RunFolder.of(run.config.output_path, model_name(run.config))


def finished_results(run: SweepRun) -> Path | None:
    """Returns the results file of a run that is finished, and need not be run again.

    None if it was never finished, if requests of it failed, if its settings differ, or if files of
    its model have changed since. The location of the folder and of the answer store do not matter.
    """
    folder = folder_of(run)
    wanted = _id(run.config.settings())
    for record in reversed(folder.records()):
        if not record.finished or record.results is None or _id(record.settings) != wanted:
            continue
        file = folder.path / record.results
        if _files_have_changed(record) or not file.is_file():
            continue
        try:
            return None if read_results(file).get("partial") else file
        except EvalError:  # damaged
            continue
    return None


def _id(settings: Mapping[str, Any]) -> str:
    return run_id({name: value for name, value in settings.items() if name != "use_cache"})


def _files_have_changed(record: RunRecord) -> bool:
    """Returns whether a file of the model, such as its weights, differs from what was recorded."""
    try:
        identity = json.loads(record.state["model"])
        recorded, arguments = identity["files"], identity["arguments"]
        return any(fingerprint(arguments.get(name)) != was for name, was in recorded.items())
    except (KeyError, TypeError, ValueError):  # of another version
        return False


def check_runs(runs: Sequence[SweepRun]) -> None:
    """Raises an `EvalError` if a run cannot work, before any model is loaded.

    Checks that models and tasks exist. The message names the run.
    """
    outlined: set[str] = set()
    for run in runs:
        config = run.config
        key = json.dumps([config.task_list, config.include_folders], default=str)
        try:
            check_model(config)
            if key not in outlined:
                TaskManager(include_path=config.include_path).outline(config.task_list)
                outlined.add(key)
            if not config.task_list:
                raise OutputError("no tasks were given. Write them under `tasks`.")
        except EvalError as error:
            raise type(error)(f"run {run.name!r}: {error}") from error


def count_requests(jobs: Sequence[Job], planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Returns the runs with their requests and stored answers counted; loads no model.

    The requests of a run that was started before are in its answer index. Those of others are
    built. Answers are stored by the identity of the model, which is known from any earlier run of
    it; if there is none, nothing is stored in the sweep's own folder.
    """
    identities = {
        run.name: identity
        for job in jobs
        if (identity := _identity_of(job)) is not None
        for run in job.runs
    }
    gpus = {run.name: job.gpus for job in jobs for run in job.runs}
    return [_counted(one, identities.get(one.run.name), gpus) for one in planned]


def _identity_of(job: Job) -> str | None:
    """Returns the identity of a job's model if an earlier run has recorded it."""
    for run in job.runs:
        for record in reversed(folder_of(run).records()):
            if not _files_have_changed(record):
                return str(record.state["model"])
    return None


def _counted(one: PlannedRun, identity: str | None, gpus: Mapping[str, int]) -> PlannedRun:
    keys = _keys(one.run)
    folder = folder_of(one.run)
    store = folder.store(one.run.config.use_cache)
    stored: int | None = None
    if not store.is_file() or (identity is None and store.parent == folder.path.parent.parent):
        stored = 0
    elif identity is not None and (exact := _exact_keys(one.run, keys)) is not None:
        with AnswerStore(store, identity, read_only=True) as opened:
            stored = sum(answer is not MISSING for answer in opened.find(exact))
    return replace(one, requests=len(keys), stored=stored, gpus=gpus.get(one.run.name, 0))


def _exact_keys(run: SweepRun, keys: list[bytes | None]) -> list[bytes | None] | None:
    """Returns the keys under which answers are stored; None if they are not known.

    Prompts in a chat format depend on the model's template: their keys are known only from the
    answer index of a run that was started before.
    """
    if not run.config.apply_chat_template:
        return keys
    folder, wanted = folder_of(run), _id(run.config.settings())
    for record in folder.records():
        if _id(record.settings) == wanted:
            columns = folder.answer_index(record).values()
            packed = b"".join(table["keys"].tobytes() for table in columns)
            return [packed[i : i + KEY_SIZE] for i in range(0, len(packed), KEY_SIZE)]
    return None


def _keys(run: SweepRun) -> list[bytes | None]:
    """Returns the key of each request of a run, repeats included; loads its tasks."""
    config = run.config
    manager = TaskManager(include_path=config.include_path, metadata=config.task_metadata)
    with config.in_environment(), mirror_at(config.data_dir):
        tasks = load_tasks(config, manager)["tasks"]
        check_run(config, tasks)
        chosen = chosen_documents(config, tasks)
        requests = []
        for name, task in tasks.items():
            build_requests(config, _Template(), name, task, chosen.get(name))
            requests += task.instances
    set_digests(requests)
    return request_keys(repeated(requests), config.seed.model_seeds)


class _Template(LM):
    """Stands in for a model while requests are counted: it joins the messages of a chat."""

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns the texts of all messages."""
        return "\n".join(str(message["content"]) for message in chat_history)

    def loglikelihood(self, requests: Any) -> list[tuple[float, bool]]:
        """Returns nothing: no request is sent to it."""
        return []

    def loglikelihood_rolling(self, requests: Any) -> list[float]:
        """Returns nothing."""
        return []

    def generate_until(self, requests: Any) -> list[str]:
        """Returns nothing."""
        return []


def as_text(planned: Sequence[PlannedRun]) -> str:
    """Returns the table of `--dry_run`, and how many requests are left."""
    headers = ["Run", "Model", "State", "Requests", "Stored", "GPUs"]
    lines = [
        [
            one.run.name,
            one.run.model,
            "finished" if one.finished else "to run",
            str(one.requests),
            "?" if one.stored is None else str(one.stored),
            str(one.gpus),
        ]
        for one in planned
    ]
    waiting = [one for one in planned if not one.finished]
    left = sum((one.requests or 0) - (one.stored or 0) for one in waiting)
    summary = f"{len(waiting)} of {len(planned)} runs to do, at most {left} requests to send."
    return f"{table(headers, lines, headers[3:])}\n{summary}\n"
