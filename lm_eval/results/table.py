"""Results as Markdown tables: one row per metric, groups with their children indented."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval import markdown

_HEADERS = ("Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
_NO_ANSWER = "No answer"
_ALIGN_RIGHT = {"Version", "n-shot", "Value", "Stderr", _NO_ANSWER}
_ARROWS = {True: "↑", False: "↓"}
_NOT_METRICS = {"name", "alias", "sample_len", "sample_count"}


#: The metric of a task that is not scored (`--predict_only`); its value means nothing.
_NOT_SCORED = "bypass"


def heading(results: Mapping[str, Any]) -> str:
    """Returns the line above a table: the model's name, and its backend if that differs."""
    config = results.get("config") or {}
    backend = results.get("model_source") or config.get("model")
    name = results.get("model_name") or backend
    if name is None:
        return "Model: not recorded"
    return f"Model: {name}" if backend in (None, name) else f"Model: {name} ({backend})"


def make_tables(result_dict: Mapping[str, Any]) -> str:
    """Returns the table of tasks, followed by that of groups if there are any.

    A task that was not scored has the words "not scored" in place of a value.
    """
    columns = ["results", "groups"] if "groups" in result_dict else ["results"]
    shown = _without_bypass(result_dict)
    return "\n".join(make_table(shown, column) for column in columns)


def _without_bypass(result_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy in which the value of `bypass` is "not scored", without error and arrow."""
    shown = dict(result_dict)
    for part in ("results", "groups"):
        shown[part] = {
            name: {
                key: "not scored" if key.startswith(f"{_NOT_SCORED},") else value
                for key, value in row.items()
                if not key.startswith(f"{_NOT_SCORED}_stderr,")
            }
            for name, row in result_dict.get(part, {}).items()
        }
    shown["higher_is_better"] = {
        name: {metric: better for metric, better in metrics.items() if metric != _NOT_SCORED}
        for name, metrics in result_dict.get("higher_is_better", {}).items()
    }
    return shown


def make_table(
    result_dict: Mapping[str, Any], column: str = "results", sort_results: bool = False
) -> str:
    """Returns a Markdown table of the tasks (`results`) or the groups (`groups`), as published.

    Confidence intervals, and the share of documents in which no answer was found, get a column if
    there are any.
    """
    rows = result_dict[column]
    ordered = _hierarchy(result_dict.get("group_subtasks", {}), rows)
    more = _more_headers(result_dict, rows)
    lines: list[list[str]] = []
    for key, depth in sorted(dict(ordered).items()) if sort_results else ordered:
        alias = rows[key].get("alias", key)
        name = f"{' ' * depth}- {alias}" if depth else alias
        lines += _lines(name, key, result_dict, rows[key], more)
    first = "Groups" if column == "groups" else "Tasks"
    return markdown.table([first, *_HEADERS, *more], lines, right=_ALIGN_RIGHT)


def _more_headers(result_dict: Mapping[str, Any], rows: Mapping[str, Any]) -> list[str]:
    """Returns the optional columns for which these rows have values."""
    intervals = result_dict.get("intervals", {})
    failures = result_dict.get("extraction_failed", {})
    headers = []
    if any(intervals.get(key) for key in rows):
        headers.append(f"{100 * result_dict['confidence']:g}% interval")
    if any(any(failures.get(key, {}).values()) for key in rows):
        headers.append(_NO_ANSWER)
    return headers


def _more_cells(
    key: str,
    metric_and_filter: str,
    result_dict: Mapping[str, Any],
    row: Mapping[str, Any],
    headers: Sequence[str],
) -> list[str]:
    cells = []
    for header in headers:
        if header == _NO_ANSWER:
            pipeline = metric_and_filter.partition(",")[2]
            failed = result_dict["extraction_failed"].get(key, {}).get(pipeline)
            share = "" if failed is None else f"{100 * failed / max(row['sample_len'], 1):.1f}%"
            cells.append(share)
        else:
            bounds = result_dict["intervals"].get(key, {}).get(metric_and_filter)
            cells.append("" if bounds is None else f"{bounds[0]:.4f} – {bounds[1]:.4f}")
    return cells


def _lines(
    name: str,
    key: str,
    result_dict: Mapping[str, Any],
    row: Mapping[str, Any],
    more: Sequence[str],
) -> list[list[str]]:
    """Returns one line per metric; only the first has the name and version."""
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
        cells = [name, version, pipeline, shots, metric, arrow, value, plus_minus, stderr]
        lines.append([*cells, *_more_cells(key, metric_and_filter, result_dict, row, more)])
        name = version = ""
    empty = [""] * (5 + len(more))
    return lines or [[name, version, "", shots, *empty]]


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _hierarchy(
    group_subtasks: Mapping[str, Sequence[str]], rows: Mapping[str, Any]
) -> list[tuple[str, int]]:
    """Returns row names with their depth: every group is followed by its children.

    A task of several groups has a row in each.
    """
    seen: set[str] = set()
    ordered: list[tuple[str, int]] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        seen.add(name)
        if name in rows:
            ordered.append((name, len(above)))
        for child in sorted({*group_subtasks.get(name, ())} - {name, *above}):
            visit(child, (*above, name))

    children = {child for names in group_subtasks.values() for child in names}
    for name in sorted(group_subtasks):
        if name not in children:
            visit(name, ())
    return ordered + sorted((name, 0) for name in rows if name not in seen)
