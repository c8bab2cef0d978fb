"""The results as a table to read: one row a metric, groups with their children indented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval import markdown

_HEADERS = ("Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
_ALIGN_RIGHT = {"Version", "n-shot", "Value", "Stderr"}
_ARROWS = {True: "↑", False: "↓"}
_NOT_METRICS = {"name", "alias", "sample_len", "sample_count"}


def make_table(
    result_dict: Mapping[str, Any], column: str = "results", sort_results: bool = False
) -> str:
    """A Markdown table of the tasks (`results`) or the groups (`groups`) alone."""
    rows = result_dict[column]
    depths, ordered = _hierarchy(result_dict.get("group_subtasks", {}), rows)
    lines: list[list[str]] = []
    for key in sorted(rows) if sort_results else ordered:
        depth = depths.get(key, 0)
        alias = rows[key].get("alias", key)
        name = f"{' ' * depth}- {alias}" if depth else alias
        lines += _lines(name, key, result_dict, rows[key])
    first = "Groups" if column == "groups" else "Tasks"
    return markdown.table([first, *_HEADERS], lines, right=_ALIGN_RIGHT)


def _lines(
    name: str, key: str, result_dict: Mapping[str, Any], row: Mapping[str, Any]
) -> list[list[str]]:
    """A line a metric; the name and version stand on the first alone."""
    version = str(result_dict["versions"].get(key, "N/A"))
    shots = str(result_dict.get("n-shot", {}).get(key, ""))
    directions = result_dict.get("higher_is_better", {}).get(key, {})
    metrics = sorted(
        k for k in row if k not in _NOT_METRICS and not k.partition(",")[0].endswith("_stderr")
    )
    lines = []
    for metric_and_filter in metrics:
        metric, _, pipeline = metric_and_filter.partition(",")
        error = row.get(f"{metric}_stderr,{pipeline}")
        arrow = _ARROWS.get(directions.get(metric), "")
        value = _number(row[metric_and_filter])
        plus_minus = "±" if error is not None else ""
        stderr = "" if error is None else _number(error)
        lines.append([name, version, pipeline, shots, metric, arrow, value, plus_minus, stderr])
        name = version = ""
    return lines or [[name, version, "", shots, "", "", "", "", ""]]


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _hierarchy(
    group_subtasks: Mapping[str, Sequence[str]], rows: Mapping[str, Any]
) -> tuple[dict[str, int], list[str]]:
    """How deep each row stands, and the rows in reading order: groups, then their children."""
    depths: dict[str, int] = {}
    ordered: list[str] = []

    def visit(name: str, depth: int) -> None:
        depths[name] = depth
        if name in rows:
            ordered.append(name)
        for child in sorted(group_subtasks.get(name, ())):
            visit(child, depth + 1)

    children = {child for names in group_subtasks.values() for child in names}
    for name in sorted(group_subtasks):
        if name not in children:
            visit(name, 0)
    return depths, ordered + sorted(name for name in rows if name not in depths)
