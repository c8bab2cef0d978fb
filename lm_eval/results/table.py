"""Formats results as Markdown tables: one row per metric, tasks of a group indented below it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval import markdown

_HEADERS = ("Version", "Filter", "n-shot", "Metric", "", "Value", "", "Stderr")
_NO_ANSWER = "No answer"
_CUT_OFF = "Cut off"
_TOKENS = "Tokens/answer"
_THOUGHT = "Thinking"
_TRUNCATED = "Truncated prompts"
_MISSING = "Missing"
_ALIGN_RIGHT = {"Version", "n-shot", "Value", "Stderr"} | {
    *(_NO_ANSWER, _CUT_OFF, _TOKENS, _THOUGHT, _TRUNCATED, _MISSING)
}
_ARROWS = {True: "↑", False: "↓"}
#: How many times as long as the number of tasks and groups a table may get.
_MOST_REPEATED = 20
_NOT_METRICS = {"name", "alias", "sample_len", "sample_count", "dropped", "difference"}

#: The metric of a task that is not scored (`--predict_only`). Its value is a placeholder.
_NOT_SCORED = "bypass"


def heading(results: Mapping[str, Any]) -> str:
    """Returns the line above a table: `Model: <name> (<backend>)`.

    The backend is left out if it is unknown or the same as the name. Without a name the backend
    takes its place, and without both the line is `Model: not recorded`.
    """
    config = results.get("config") or {}
    backend = results.get("model_source") or config.get("model")
    name = results.get("model_name") or backend
    if name is None:
        return "Model: not recorded"
    return f"Model: {name}" if backend in (None, name) else f"Model: {name} ({backend})"


def make_tables(result_dict: Mapping[str, Any]) -> str:
    """Returns the table of tasks, followed by the tables of groups and of clean scores, if any.

    For a task that was not scored (`--predict_only`), the value is "not scored".
    """
    columns = ["results", "groups"] if "groups" in result_dict else ["results"]
    shown = _without_bypass(result_dict)
    tables = [make_table(shown, column) for column in columns]
    if "decontaminated" in result_dict:
        tables.append(clean_table(result_dict))
    return "\n".join(tables)


def _without_bypass(result_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a copy for display: `bypass` has the value "not scored" and no error or direction."""
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
    """Returns the Markdown table of the published harness for tasks or groups.

    Columns are added if the results contain values for them: confidence intervals, the percentage
    of documents (with metrics of repeats: of answers) in which the filters found no answer, the
    percentage of answers that were cut off at the maximum length, for models that think the mean
    number of tokens of an answer and how many of them are thoughts, the number of prompts that were
    truncated because they were too long for the model, and the percentage of documents that are
    missing in the scores because requests failed.

    Args:
        result_dict: the results, which must contain `column`.
        column: `results` for a table of tasks, `groups` for a table of groups.
        sort_results: sort the rows by name instead of placing tasks below their group.
    """
    rows = result_dict[column]
    ordered = hierarchy(result_dict.get("group_subtasks", {}), rows)
    extra = _extra_headers(result_dict, rows)
    lines: list[list[str]] = []
    for key, depth in sorted(dict(ordered).items()) if sort_results else ordered:
        alias = rows[key].get("alias", key)
        name = f"{' ' * depth}- {alias}" if depth else alias
        lines += _lines(name, key, result_dict, rows[key], extra)
    first = "Groups" if column == "groups" else "Tasks"
    return markdown.table([first, *_HEADERS, *extra], lines, right=_ALIGN_RIGHT)


def clean_table(result_dict: Mapping[str, Any]) -> str:
    """Returns the table of clean scores (`--decontaminate`), below a line that describes it.

    One row per metric of each task and group: the score over the clean documents, the number of
    these and of the contaminated documents, and the difference between both kinds.
    """
    rows, source = result_dict["decontaminated"], result_dict["decontaminated_with"]
    lines = [
        line
        for key, depth in hierarchy(result_dict.get("group_subtasks", {}), rows)
        for line in _clean_lines(" " * depth + "- " * bool(depth), key, result_dict)
    ]
    interval = f"{100 * source['confidence']:g}% interval"
    headers = [*_CLEAN_HEADERS, interval]
    return (
        f"Scores without the documents that {source['findings']} lists as contaminated:\n"
        + markdown.table(headers, lines, right=_CLEAN_RIGHT)
    )


_DIFFERENCE = "Clean − contaminated"
_CLEAN_HEADERS = (
    *("Tasks", "Filter", "Metric", "", "Clean", "", "Stderr", "Documents", "Dropped"),
    _DIFFERENCE,
)
_CLEAN_RIGHT = {"Clean", "Stderr", "Documents", "Dropped", _DIFFERENCE}


def _clean_lines(indent: str, key: str, result_dict: Mapping[str, Any]) -> list[list[str]]:
    """Returns the rows of a task or group in the table of clean scores, one per metric.

    If it has no clean scores, there is one row that says why.
    """
    row = result_dict["decontaminated"][key]
    directions = result_dict.get("higher_is_better", {}).get(key, {})
    name, counts = f"{indent}{row.get('alias', key)}", [str(row["sample_len"]), str(row["dropped"])]
    lines = []
    for metric_and_filter in _metrics(row):
        metric, _, pipeline = metric_and_filter.partition(",")
        arrow, value = _ARROWS.get(directions.get(metric), ""), _number(row[metric_and_filter])
        stderr = _number(row[f"{metric}_stderr,{pipeline}"])
        found = row.get("difference", {}).get(metric_and_filter)
        bounds = None if found is None else found.get("interval")
        difference = [
            "none dropped" if not row["dropped"] else "" if found is None else _signed(found),
            "" if bounds is None else f"{bounds[0]:+.4f} – {bounds[1]:+.4f}",
        ]
        lines.append([name, pipeline, metric, arrow, value, "±", stderr, *counts, *difference])
        name = ""
    reason = "all dropped" if not row["sample_len"] else "no score"
    return lines or [[name, "", "", "", reason, "", "", *counts, "", ""]]


def _signed(found: Mapping[str, Any]) -> str:
    return f"{found['difference']:+.4f}"


def _extra_headers(result_dict: Mapping[str, Any], rows: Mapping[str, Any]) -> list[str]:
    """Returns the headers of the optional columns for which these rows have values."""
    intervals = result_dict.get("intervals", {})
    failures = result_dict.get("extraction_failed", {})
    headers = []
    if any(intervals.get(key) for key in rows):
        headers.append(f"{100 * result_dict['confidence']:g}% interval")
    of_repeats = result_dict.get("repeats_without_answer", {})
    if any(
        any((failures.get(k) or {}).values()) or any((of_repeats.get(k) or {}).values())
        for k in rows
    ):
        headers.append(_NO_ANSWER)
    if any(result_dict.get("length_stopped", {}).get(key) for key in rows):
        headers.append(_CUT_OFF)
    counted = result_dict.get("answer_tokens", {})
    if any("thinking_tokens" in counted.get(key, {}) for key in rows):
        headers += [_TOKENS, _THOUGHT]
    if any(_truncated(key, result_dict) for key in rows):
        headers.append(_TRUNCATED)
    if any(_missing(key, result_dict)[0] for key in rows):
        headers.append(_MISSING)
    return headers


def _repeats(key: str, result_dict: Mapping[str, Any]) -> int:
    """Returns how many answers each document of a task has."""
    return result_dict.get("configs", {}).get(key, {}).get("repeats") or 1


def _truncated(key: str, result_dict: Mapping[str, Any]) -> int:
    """Returns the number of truncated requests of a task, or of all tasks of a group."""
    counts = result_dict.get("truncated_requests", {})
    return sum(counts.get(task, 0) for task in _tasks_of(key, result_dict))


def _missing(key: str, result_dict: Mapping[str, Any]) -> tuple[int, int]:
    """Returns how many documents of a task or group are missing in its scores, and out of how many.

    A task of which all documents are missing has no row, but counts in its groups.
    """
    unanswered, rows = result_dict.get("unanswered_documents", {}), result_dict.get("results", {})
    tasks = _tasks_of(key, result_dict)
    missing = sum(len(unanswered.get(task, ())) for task in tasks)
    scored = sum(rows.get(task, {}).get("sample_len", 0) for task in tasks)
    return missing, missing + scored


def _tasks_of(key: str, result_dict: Mapping[str, Any]) -> set[str]:
    """Returns the tasks of a group, those of its groups included; of a task, the task itself."""
    children = result_dict.get("group_subtasks", {})
    found: set[str] = set()
    open_names, seen = [key], {key}
    while open_names:
        name = open_names.pop()
        below = set(children.get(name, ()))
        if not below:
            found.add(name)
        new = below - seen
        seen |= new
        open_names += new
    return found


def _extra_cells(
    key: str,
    metric_and_filter: str,
    result_dict: Mapping[str, Any],
    row: Mapping[str, Any],
    headers: Sequence[str],
) -> list[str]:
    """Returns the cells of the optional columns `headers` for one metric of the task `key`.

    A cell is empty if there is no value.
    """
    cells = []
    for header in headers:
        if header == _NO_ANSWER:
            pipeline = metric_and_filter.partition(",")[2]
            failed = result_dict["extraction_failed"].get(key, {}).get(pipeline)
            answers = row["sample_len"]
            of_repeats = result_dict.get("repeats_without_answer", {}).get(key, {})
            if pipeline in of_repeats:  # of all answers, not only of those that were scored first
                failed, answers = of_repeats[pipeline], answers * _repeats(key, result_dict)
            cells.append(_share(failed, answers))
        elif header == _CUT_OFF:
            stopped = result_dict["length_stopped"].get(key)
            cells.append(_share(stopped, row.get("sample_len", 0) * _repeats(key, result_dict)))
        elif header in (_TOKENS, _THOUGHT):
            counts = result_dict["answer_tokens"].get(key, {})
            total = counts.get("tokens" if header == _TOKENS else "thinking_tokens")
            mean = "" if total is None else f"{total / counts['answers']:,.0f}"
            cells.append(mean)
        elif header == _TRUNCATED:
            cells.append(str(_truncated(key, result_dict) or ""))
        elif header == _MISSING:
            missing, documents = _missing(key, result_dict)
            cells.append(_share(missing or None, documents))
        else:
            bounds = result_dict["intervals"].get(key, {}).get(metric_and_filter)
            cells.append("" if bounds is None else f"{bounds[0]:.4f} – {bounds[1]:.4f}")
    return cells


def _lines(
    name: str,
    key: str,
    result_dict: Mapping[str, Any],
    row: Mapping[str, Any],
    extra: Sequence[str],
) -> list[list[str]]:
    """Returns the table rows of a task, one per metric. Only the first shows name and version.

    A task without metrics gets one row. `name` is the displayed name, `key` the name in the
    results, and `extra` the optional headers.
    """
    version = str(result_dict["versions"].get(key, "N/A"))
    shots = str(result_dict.get("n-shot", {}).get(key, ""))
    directions = result_dict.get("higher_is_better", {}).get(key, {})
    lines = []
    for metric_and_filter in _metrics(row):
        metric, _, pipeline = metric_and_filter.partition(",")
        error = row.get(f"{metric}_stderr,{pipeline}")
        arrow = _ARROWS.get(directions.get(metric), "")
        value = _number(row[metric_and_filter])
        plus_minus = "±" if error is not None else ""
        stderr = "" if error is None else _number(error)
        cells = [name, version, pipeline, shots, metric, arrow, value, plus_minus, stderr]
        lines.append([*cells, *_extra_cells(key, metric_and_filter, result_dict, row, extra)])
        name = version = ""
    empty = [""] * (5 + len(extra))
    return lines or [[name, version, "", shots, *empty]]


def _metrics(row: Mapping[str, Any]) -> list[str]:
    """Returns the sorted keys of the scores in a row, such as `acc,none`."""
    return sorted(
        k for k in row if k not in _NOT_METRICS and not k.partition(",")[0].endswith("_stderr")
    )


def _share(count: int | None, of: int) -> str:
    """Returns a count as a percentage of `of`; "" if there is no count."""
    return "" if count is None else f"{100 * count / max(of, 1):.1f}%"


def _number(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def hierarchy(
    group_subtasks: Mapping[str, Sequence[str]], rows: Mapping[str, Any]
) -> list[tuple[str, int]]:
    """Returns `(name, depth)` for every row, with each group followed by its children.

    A task that belongs to several groups appears below each of them, unless the table would get
    many times as long: then a group that was listed before is listed without its tasks. Depth 0 is
    the top level; rows that belong to no group come last, with depth 0.
    """
    most = _MOST_REPEATED * len(rows)
    seen: set[str] = set()
    ordered: list[tuple[str, int]] = []

    def visit(name: str, above: tuple[str, ...]) -> None:
        if name in rows:
            ordered.append((name, len(above)))
        if name in seen and len(ordered) > most:
            return
        seen.add(name)
        for child in sorted({*group_subtasks.get(name, ())} - {name, *above}):
            visit(child, (*above, name))

    children = {child for names in group_subtasks.values() for child in names}
    for name in sorted(group_subtasks):
        if name not in children:
            visit(name, ())
    return ordered + sorted((name, 0) for name in rows if name not in seen)
