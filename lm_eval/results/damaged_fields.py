"""Finds fields of a results file that have another type than readers expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Fields that are JSON objects, if a file has them.
_OBJECTS = (
    *("group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "config"),
    *("datasets", "intervals", "task_hashes"),
)


def damaged_fields(content: Mapping[str, Any]) -> list[str]:
    """Returns the fields that should be JSON objects and are not."""
    return [name for name in _OBJECTS if not isinstance(content.get(name), (dict, type(None)))]
