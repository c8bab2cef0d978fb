"""Hashes by which a later run knows whether it asks the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval.api.task import Task
from lm_eval.engine.keys import prompts_hash
from lm_eval.results.serialise import hash_json


def task_hashes(task: Task, data: Mapping[str, Any]) -> dict[str, str]:
    """Returns hashes of a task's configuration, data, prompts, and the numbers of its documents."""
    return {
        "config": config_hash(task),
        # The rows alone: where they came from makes no difference.
        "data": hash_json(data.get("splits", data)),
        "prompts": prompts_hash(task.instances),
        "documents": hash_json(sorted({request.doc_id for request in task.instances})),
    }


def config_hash(task: Task) -> str:
    """Returns a hash of all that a task's file says, and what the run has changed about it."""
    return hash_json(task.dump_config())
