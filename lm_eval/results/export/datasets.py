"""Finds which dataset of the Hugging Face Hub a task was evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def hub_dataset(results: Mapping[str, Any], task: str) -> dict[str, str] | None:
    """Returns the dataset of a task on the Hub; None if its data comes from elsewhere.

    The keys are `id`, and, if they are known, `config`, `split` and `revision`.

    Args:
        results: the content of a results file.
        task: the name of the task.
    """
    config = _object((results.get("configs") or {}).get(task))
    described = _object((results.get("datasets") or {}).get(task))
    name = config.get("dataset_path")
    if not isinstance(name, str) or name.count("/") != 1 or name.startswith(("/", ".", "~")):
        return None
    split = config.get("test_split") or config.get("validation_split")
    revision = described.get("revision") or _object(config.get("dataset_kwargs")).get("revision")
    found = {"id": name, "config": config.get("dataset_name"), "split": split, "revision": revision}
    return {key: str(value) for key, value in found.items() if value}


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
