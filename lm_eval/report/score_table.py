"""The table of scores: tasks below their groups, one value per run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lm_eval.report.inputs import ReportRun
from lm_eval.results.score_rows import ScoreRow, score_rows
from lm_eval.results.table import hierarchy

#: The normal quantile of intervals that are computed from standard errors.
_Z = 1.959964
_NOT_SCORED = "bypass"


def score_table(runs: Sequence[ReportRun]) -> dict[str, Any]:
    """Returns the rows of the table, and the level of their intervals.

    A row is a task or group; it has its depth, and one line per metric and filter pipeline with one
    value per run. Intervals are those of the results, or 1.96 standard errors around the score.
    """
    groups: dict[str, list[str]] = {}
    rows: dict[str, dict[tuple[str, str], list[ScoreRow | None]]] = {}
    aliases: dict[str, str] = {}
    for place, run in enumerate(runs):
        for name, members in (run.results.get("group_subtasks") or {}).items():
            groups[name] = list(dict.fromkeys([*groups.get(name, ()), *members]))
        for name, row in run.results["results"].items():
            rows.setdefault(name, {})
            aliases.setdefault(name, _alias(row.get("alias"), name))
        for score in score_rows(run.results):
            if score.metric != _NOT_SCORED:
                line = rows[score.name].setdefault((score.metric, score.filter), [None] * len(runs))
                line[place] = score
    return {
        "rows": [
            {
                "name": name,
                "alias": aliases[name],
                "depth": depth,
                "group": bool(groups.get(name)),
                "shots": _first(runs, "n-shot", name),
                "version": _first(runs, "versions", name),
                "scores": [
                    {
                        "metric": metric,
                        "filter": pipeline,
                        "higher": next((s.higher_is_better for s in scores if s is not None), None),
                        "values": [None if s is None else _value(s) for s in scores],
                    }
                    for (metric, pipeline), scores in rows[name].items()
                ],
            }
            for name, depth in hierarchy(groups, rows)
        ],
        "levels": [run.results.get("confidence") for run in runs],
    }


def _value(score: ScoreRow) -> dict[str, Any]:
    """Returns a score with its interval; a score that is not finite as text."""
    stderr = score.stderr if score.stderr is not None and math.isfinite(score.stderr) else None
    low, high = score.low, score.high
    computed = low is None and stderr is not None and math.isfinite(score.value)
    if computed and stderr is not None:
        low, high = score.value - _Z * stderr, score.value + _Z * stderr
    return {
        "value": score.value if math.isfinite(score.value) else str(score.value),
        "stderr": stderr,
        "low": low,
        "high": high,
        "normal": computed,
        "n": score.documents,
    }


def _alias(alias: Any, name: str) -> str:
    """Returns the name that the table shows; published files have indentation in it."""
    text = str(alias or name).strip()
    return text.removeprefix("-").strip() or name


def _first(runs: Sequence[ReportRun], field: str, name: str) -> Any:
    """Returns the value of a task in the first run that has one."""
    for run in runs:
        table = run.results.get(field)
        if isinstance(table, Mapping) and table.get(name) is not None:
            return table[name]
    return None
