"""Formats comparisons as text, Markdown, LaTeX, CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.comparison.flips import flipped_documents
from lm_eval.comparison.rows import Comparison, Row
from lm_eval.comparison.verdicts import summary, verdict
from lm_eval.markdown import table
from lm_eval.results.text_plot import Interval, interval_plot

HEADERS = ["Tasks", "Metric", "Filter", "n", "A", "B", "A−B", "±", "p", "p Holm", "wins", "MDE"]
_MANY = 12
"""Up to this many rows, each gets a sentence."""


def as_text(comparison: Comparison) -> str:
    """Returns one table per pair of runs, with sentences about what they show."""
    parts = []
    for first, second in dict.fromkeys((row.first, row.second) for row in comparison.rows):
        rows = [row for row in comparison.rows if (row.first, row.second) == (first, second)]
        parts.append(f"A: {first}\nB: {second}\n")
        lines = [_cells(row) for row in rows]
        parts.append(table(HEADERS, lines, HEADERS[3:]))
        if len(rows) <= _MANY:
            parts.append("\n".join(verdict(row, comparison.confidence) for row in rows) + "\n")
        parts += [
            f"{row.name}: the runs differ in more than the model: {'; '.join(row.unequal)}.\n"
            for row in {row.name: row for row in rows if row.unequal}.values()
        ]
        parts += _left_out(rows)
    parts += [f"{sentence}\n" for sentence in summary(comparison)]
    if comparison.chat_templates:
        listed = ", ".join(f"{k}: {v or 'none'}" for k, v in comparison.chat_templates.items())
        parts.append(f"The chat templates differ ({listed}).\n")
    parts.append(
        "A−B is the difference on the same documents, ± half its confidence interval. MDE: the "
        "smallest true\ndifference that this comparison finds with a probability of 80 %. wins: "
        "documents on which only A, only B\nhas the higher score.\n"
    )
    return "\n".join(parts)


def difference_plot(comparison: Comparison) -> str:
    """Returns the differences of scores between 0 and 1 with their intervals, as a text plot."""
    parts = []
    for first, second in dict.fromkeys((row.first, row.second) for row in comparison.rows):
        lines = [
            Interval(
                f"{row.name} {row.metric}{'' if row.filter == 'none' else f' {row.filter}'}",
                row.difference.value,
                *row.difference.interval,
            )
            for row in comparison.rows
            if (row.first, row.second) == (first, second) and row.is_share
        ]
        ends = [abs(end) for line in lines for end in (line.value, line.low, line.high)]
        reach = max([end for end in ends if math.isfinite(end)], default=0.0)
        reach = math.ceil(max(reach, 0.005) * 100) / 100
        if lines:
            title = (
                f"A−B with {100 * comparison.confidence:g}% intervals (A: {first}, B: {second}):"
            )
            parts.append(f"{title}\n\n{interval_plot(lines, -reach, reach, zero=True)}")
    return "\n".join(parts) or "There are no scores between 0 and 1 to plot.\n"


def _left_out(rows: Sequence[Row]) -> list[str]:
    """Returns one sentence per task of which one run has more documents than the other."""
    return [
        f"{row.name}: {row.difference.documents} "
        f"{'document is' if row.difference.documents == 1 else 'documents are'} in both runs; "
        f"{row.first_only} only in A and {row.second_only} only in B are left out.\n"
        for row in {row.name: row for row in rows if not row.group}.values()
        if row.first_only or row.second_only
    ]


def as_markdown(comparison: Comparison) -> str:
    """Returns one Markdown table over all pairs."""
    lines = [[row.first, row.second, *_cells(row)] for row in comparison.rows]
    return table(["A model", "B model", *HEADERS], lines, HEADERS[3:])


def as_latex(comparison: Comparison) -> str:
    """Returns a LaTeX `tabular` environment."""
    headers = ["A model", "B model", *HEADERS]
    lines = [
        " & ".join(map(_latex, [row.first, row.second, *_cells(row)])) + r" \\"
        for row in comparison.rows
    ]
    head = " & ".join(map(_latex, headers)) + r" \\ \hline"
    columns = "l" * 5 + "r" * (len(headers) - 5)
    return "\n".join([rf"\begin{{tabular}}{{{columns}}}", head, *lines, r"\end{tabular}"]) + "\n"


def as_csv(comparison: Comparison) -> str:
    """Returns one line per row, with all digits."""
    records = [row_record(row) for row in comparison.rows]
    text = io.StringIO()
    writer = csv.DictWriter(text, list(records[0]) if records else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def as_json(comparison: Comparison) -> str:
    """Returns the comparison as a JSON object."""
    content = {
        "runs": [
            {"label": run.label, "model": run.model, "path": str(run.path)}
            for run in comparison.runs
        ],
        "confidence": comparison.confidence,
        "chat_templates": dict(comparison.chat_templates),
        "rows": [row_record(row) for row in comparison.rows],
        "summary": summary(comparison),
    }
    return json.dumps(_finite(content), indent=2, ensure_ascii=False) + "\n"


FORMATS: dict[str, Callable[[Comparison], str]] = {
    "text": as_text,
    "markdown": as_markdown,
    "latex": as_latex,
    "csv": as_csv,
    "json": as_json,
}


def row_record(row: Row) -> dict[str, Any]:
    """Returns a row as a flat dictionary."""
    difference = row.difference
    return {
        "first": row.first,
        "second": row.second,
        "name": row.name,
        "group": row.group,
        "metric": row.metric,
        "filter": row.filter,
        "higher_is_better": row.higher_is_better,
        "documents": difference.documents,
        "clusters": difference.clusters,
        "documents_only_in_first": row.first_only,
        "documents_only_in_second": row.second_only,
        "first_score": difference.first,
        "second_score": difference.second,
        "difference": difference.value,
        "stderr": difference.stderr,
        "low": difference.interval[0],
        "high": difference.interval[1],
        "test": difference.test,
        "p_value": difference.p_value,
        "p_holm": row.p_holm,
        "p_benjamini_hochberg": row.p_bh,
        "first_wins": difference.first_wins,
        "second_wins": difference.second_wins,
        "detectable": row.detectable,
        "better": row.better,
        "unequal": "; ".join(row.unequal),
    }


def _cells(row: Row) -> list[str]:
    difference = row.difference
    low, high = difference.interval
    wins = (
        "" if difference.first_wins is None else f"{difference.first_wins}:{difference.second_wins}"
    )
    return [
        ("= " if row.group else "") + row.name + (" (!)" if row.unequal else ""),
        row.metric,
        row.filter,
        str(difference.documents),
        _number(difference.first),
        _number(difference.second),
        _number(difference.value, sign=True),
        _number((high - low) / 2),
        _p_value(difference.p_value),
        _p_value(row.p_holm),
        wins,
        _number(row.detectable),
    ]


def _number(value: float, sign: bool = False) -> str:
    if math.isnan(value):
        return ""
    return f"{value:+.4f}" if sign else f"{value:.4f}"


def _p_value(value: float) -> str:
    if math.isnan(value):
        return ""
    return "<0.0001" if value < 0.0001 else f"{value:.4f}"


def _latex(text: str) -> str:
    """Returns text with the characters that have a meaning in LaTeX escaped."""
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    special |= {character: f"\\{character}" for character in "&%$#_{}"}
    special |= {"±": r"$\pm$", "−": "--", "<": "$<$", ">": "$>$", "|": "$|$"}
    return "".join(special.get(character, character) for character in text)


def _finite(value: Any) -> Any:
    """Returns a JSON value with None in place of nan and infinities."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def flips(comparison: Comparison, count: int) -> str:
    """Returns the documents that one model answers better than the other, with their answers.

    Args:
        comparison: a comparison of runs whose tasks keep their requests.
        count: how many documents to show per task and direction; the first ones.
    """
    parts = []
    for flip in flipped_documents(comparison, count):
        parts.append(
            f"{flip.task}, document {flip.document}, {flip.metric}: {flip.first_label} "
            f"{flip.first_score:g}, {flip.second_label} {flip.second_score:g}\n{flip.prompt}\n"
            f"  {flip.first_label}: {flip.first_answer}\n"
            f"  {flip.second_label}: {flip.second_answer}\n"
        )
    return "\n".join(parts) if parts else "No document has different scores.\n"
