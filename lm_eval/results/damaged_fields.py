"""Finds fields of a results file that have another type than readers expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Fields that are JSON objects, if a file has them.
_OBJECTS = (
    *("group_subtasks", "configs", "versions", "n-shot", "higher_is_better", "n-samples", "config"),
    *("datasets", "intervals", "task_hashes"),
)


def damaged_field(content: Mapping[str, Any]) -> str | None:
    """Returns the first field that should be a JSON object and is not; None if there is none."""
    for name in _OBJECTS:
        if not isinstance(content.get(name), (dict, type(None))):
            return name
    return None
