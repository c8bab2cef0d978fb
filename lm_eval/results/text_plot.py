"""Plots scores with their intervals as text, for terminals (`--plot`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.printable import printable_line
from lm_eval.results.score_rows import score_rows
from lm_eval.results.table import hierarchy

#: The number of characters of the axis.
WIDTH = 50
#: The normal quantile of intervals that are computed from standard errors.
_Z = 1.959964


@dataclass(frozen=True)
class Interval:
    """One line of a plot: a value with the ends of its interval, which may be nan."""

    label: str
    value: float
    low: float = math.nan
    high: float = math.nan


def interval_plot(
    lines: Sequence[Interval], low: float, high: float, zero: bool = False, width: int = WIDTH
) -> str:
    """Returns the lines as a text plot, with an axis from `low` to `high` below.

    A value is drawn as `●` and its interval as a line with ends; what is beyond the axis ends in
    an arrow. With `zero`, a vertical line marks 0.
    """
    if not lines or not high > low:
        return ""
    labels = [printable_line(line.label) for line in lines]
    longest = max(map(len, labels))

    def place(value: float) -> float:
        return (value - low) / (high - low) * (width - 1)

    middle = round(place(0.0)) if zero and low <= 0 <= high else None
    drawn = [
        f"{label:<{longest}}  {_drawn(line, place, middle, width)}  {line.value:.4f}"
        for label, line in zip(labels, lines, strict=True)
    ]
    left, right = f"{low:g}", f"{high:g}"
    axis = left + " " * (width - len(left) - len(right)) + right
    if middle is not None and len(left) < middle < width - len(right):
        axis = axis[:middle] + "0" + axis[middle + 1 :]
    return "\n".join([*drawn, " " * (longest + 2) + axis]) + "\n"


def _drawn(line: Interval, place: Callable[[float], float], middle: int | None, width: int) -> str:
    """Returns the characters of one line of the plot."""
    cells = [" "] * width
    if middle is not None:
        cells[middle] = "│"
    if math.isfinite(line.low) and math.isfinite(line.high):
        first, last = round(place(line.low)), round(place(line.high))
        for i in range(max(first, 0), min(last, width - 1) + 1):
            cells[i] = "─"
        if 0 <= first < width:
            cells[first] = "├"
        if 0 <= last < width:
            cells[last] = "┤" if last > first else cells[last]
        if first < 0 <= last:
            cells[0] = "←"
        if last >= width > first:
            cells[-1] = "→"
    at = round(place(line.value)) if math.isfinite(line.value) else -1
    if 0 <= at < width:
        cells[at] = "●"
    return "".join(cells)


def score_plot(results: Mapping[str, Any]) -> str:
    """Returns the scores between 0 and 1 of results with their intervals, as a text plot.

    Without `--confidence`, an interval is 1.96 standard errors around the score.
    """
    lines = list(_score_lines(results))
    if not lines:
        return "There are no scores between 0 and 1 to plot.\n"
    level = results.get("confidence") or 0.95
    return f"Scores with {100 * level:g}% intervals:\n\n" + interval_plot(lines, 0.0, 1.0)


def _score_lines(results: Mapping[str, Any]) -> Iterator[Interval]:
    found = list(score_rows(results))
    aliases = {name: row.get("alias", name) for name, row in results["results"].items()}
    for name, depth in hierarchy(results.get("group_subtasks") or {}, results["results"]):
        for row in found:
            if row.name != name or row.higher_is_better is False or not 0 <= row.value <= 1:
                continue
            low, high = row.low, row.high
            if low is None or high is None:
                half = math.nan if row.stderr is None else _Z * row.stderr
                low, high = row.value - half, row.value + half
            pipeline = "" if row.filter == "none" else f" {row.filter}"
            label = f"{' ' * depth}{str(aliases[name]).strip()} {row.metric}{pipeline}"
            yield Interval(label, row.value, low, high)
