"""Hashes of tasks, by which a later run detects that a task has changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval.api.task import Task
from lm_eval.config.run import SPEED_ARGUMENTS
from lm_eval.engine.keys import prompts_hash
from lm_eval.redaction import without_secrets
from lm_eval.results.serialize import hash_json


def task_hashes(task: Task, data: Mapping[str, Any]) -> dict[str, str]:
    """Returns hashes of a task's configuration, data, prompts and document numbers.

    The keys are `config`, `data`, `prompts` and `documents`. `data` is the task's entry under
    `datasets` in the results (`data.fingerprint.describe`).
    """
    return {
        "config": config_hash(task),
        # Only the rows: the same rows from another source are the same data.
        "data": hash_json(data.get("splits", data)),
        "prompts": prompts_hash(task.instances),
        "documents": hash_json(sorted({request.doc_id for request in task.instances})),
    }


def config_hash(task: Task, metadata: Mapping[str, Any] | None = None) -> str:
    """Returns a hash of a task's configuration, including what the run's options changed in it.

    The metadata of a task contains the model arguments. Secrets are left out, and so are arguments
    that change only the speed. If `metadata` is given, it replaces that of the task.
    """
    config = task.dump_config()
    metadata = config.get("metadata") if metadata is None else metadata
    if isinstance(metadata, Mapping):
        relevant = {key: value for key, value in metadata.items() if key not in SPEED_ARGUMENTS}
        config = {**config, "metadata": without_secrets(relevant)}
    return hash_json(config)
