"""Finds the answers of a stored run to the requests of its tasks."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Failure, Instance
from lm_eval.api.task import Task
from lm_eval.config.run import RunConfig
from lm_eval.engine.answer_index import (
    continuation_hash,
    continuations_by_position,
    keys_by_position,
    tokens_by_position,
)
from lm_eval.engine.keys import request_keys
from lm_eval.engine.repeats import grouped, repeated
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import DataError
from lm_eval.runs.record import changes
from lm_eval.runs.stored import StoredRun

logger = logging.getLogger(__name__)


def set_answers(
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
