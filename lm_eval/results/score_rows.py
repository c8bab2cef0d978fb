"""The scores of results as a flat list: one row per task or group, metric and filter pipeline."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class ScoreRow:
    """One score of a task or group.

    Attributes:
        name: the name of the task or group.
        group: whether it is a group.
        metric: the metric.
        filter: the filter pipeline that it is computed under.
        value: the score.
        stderr: its standard error; None if it has none.
        low: the lower end of its confidence interval; None without `--confidence`.
        high: the upper end of its confidence interval; None without `--confidence`.
        higher_is_better: the direction of the metric; None if it is not known.
        documents: how many documents were scored; None if it is not known.
        num_fewshot: the number of few-shot examples; None if it is not known.
        version: the version of the task or group; None if it is not known.
    """

    name: str
    group: bool
    metric: str
    filter: str
    value: float
    stderr: float | None
    low: float | None
    high: float | None
    higher_is_better: bool | None
    documents: int | None
    num_fewshot: int | None
    version: float | str | None


def score_rows(results: Mapping[str, Any]) -> Iterator[ScoreRow]:
    """Yields the scores of results, of this package or of a published results file.

    Scores that are not numbers are left out.
    """
    groups = {name for name, members in (results.get("group_subtasks") or {}).items() if members}
    for name, row in results["results"].items():
        intervals = _of(results, "intervals", name)
        for key, given in row.items():
            metric, comma, pipeline = key.partition(",")
            value = _number(given)
            if not comma or metric.endswith("_stderr") or value is None:
                continue
            low, high = _interval(intervals.get(key))
            yield ScoreRow(
                name=name,
                group=name in groups,
                metric=metric,
                filter=pipeline,
                value=value,
                stderr=_number(row.get(f"{metric}_stderr,{pipeline}")),
                low=low,
                high=high,
                higher_is_better=_of(results, "higher_is_better", name).get(metric),
                documents=_documents(results, name, key, row),
                num_fewshot=_integer((results.get("n-shot") or {}).get(name)),
                version=(results.get("versions") or {}).get(name),
            )


def _documents(
    results: Mapping[str, Any], name: str, key: str, row: Mapping[str, Any]
) -> int | None:
    counts = row.get("sample_count")
    if isinstance(counts, Mapping) and key in counts:
        return _integer(counts[key])
    return _integer(row.get("sample_len", _of(results, "n-samples", name).get("effective")))


def _of(results: Mapping[str, Any], field: str, name: str) -> Mapping[str, Any]:
    found = (results.get(field) or {}).get(name)
    return found if isinstance(found, Mapping) else {}


def _integer(value: Any) -> int | None:
    return value if type(value) is int else None


def _number(value: Any) -> float | None:
    """Returns a number as a float; None for other values, and for integers that are too large."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def _interval(given: Any) -> tuple[float | None, float | None]:
    """Returns the ends of a confidence interval; None for both unless they are finite numbers."""
    ends = [_number(end) for end in given] if isinstance(given, (list, tuple)) else []
    if len(ends) != 2 or any(end is None or not math.isfinite(end) for end in ends):
        return None, None
    return ends[0], ends[1]
