"""Leaves out the fields of a results file that are not what they should be.

A results file may be damaged or written by anyone. The modules of the report rely on the types of
the tables that are checked here, and check all other fields themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: Tables by task or group that the report reads.
_TABLES = (
    *("configs", "versions", "n-shot", "n-samples", "higher_is_better"),
    *("group_subtasks", "task_hashes"),
)
#: Larger integers cannot become floating-point numbers.
_LARGEST = 2**1023


def checked_results(results: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Returns the results without fields of a wrong type, and a note that names these."""
    found = dict(results)
    wrong = [name for name in _TABLES if not isinstance(found.get(name, {}), (Mapping, type(None)))]
    for name in wrong:
        del found[name]
    groups = found.get("group_subtasks") or {}
    if invalid := [name for name, members in groups.items() if not _is_list_of_names(members)]:
        wrong.append("group_subtasks")
        found["group_subtasks"] = {k: v for k, v in groups.items() if k not in invalid}
    rows = found.get("results")
    if isinstance(rows, Mapping):
        valid = {
            name: {key: value for key, value in row.items() if not _is_too_large(value)}
            for name, row in rows.items()
            if isinstance(row, Mapping)
        }
        if valid != rows:
            wrong.append("results")
        found["results"] = valid
    notes = [f"The results file is damaged; these fields are not valid: {', '.join(wrong)}."]
    return found, notes if wrong else []


def _is_list_of_names(members: Any) -> bool:
    return isinstance(members, list) and all(isinstance(one, str) for one in members)


def _is_too_large(value: Any) -> bool:
    return isinstance(value, int) and abs(value) > _LARGEST
