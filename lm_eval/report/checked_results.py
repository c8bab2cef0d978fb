"""Leaves out the values of a results file that are not what they should be.

A results file may be damaged or written by anyone. The modules of the report rely on the types that
are checked here and in `results/damaged_fields.py`, and check all other fields themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Larger integers cannot become floating-point numbers.
_LARGEST = 2**1023


def checked_results(
    results: Mapping[str, Any], damaged: Sequence[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """Returns the results without values of a wrong type, and a note that names their fields.

    `damaged` are fields that were left out before; the note names them, too.
    """
    found, wrong = dict(results), list(damaged)
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
