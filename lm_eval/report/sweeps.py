"""The sweeps of a report: a table of models and settings by tasks, and a curve per task."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lm_eval.sweeps.matrix import CHECKPOINT
from lm_eval.sweeps.record import SweepRecord
from lm_eval.sweeps.scores import SweepScore, main_scores, pivot

#: The level of intervals that are computed from standard errors.
LEVEL = 0.95


def sweep_summary(record: SweepRecord) -> dict[str, Any]:
    """Returns what the page shows of a sweep, or of the evaluations of a training run.

    Scores are in the first metric of each task, with intervals. A task has curves if its runs are
    of checkpoints: one per model and setting, with a point per training step.
    """
    scores = main_scores(record)
    found = pivot(scores)
    return {
        "name": record.folder.absolute().name,
        "runs": len(record.runs),
        "settings": list(found.settings),
        "tasks": [_task(scores, task, metric) for task, metric in found.tasks],
        "lines": [
            {
                "model": model,
                "labels": list(labels),
                "scores": [None if one is None else _value(one) for one in values],
            }
            for model, labels, values in found.lines
        ],
        "curves": [
            {**_task(own, task, metric), "series": series}
            for task, metric in found.tasks
            for own in [[s for s in scores if (s.row.name, s.row.metric) == (task, metric)]]
            if (series := _series(own))
        ],
        "failed": [{"name": run.name, "message": run.message} for run in record.failed],
    }


def _task(scores: Sequence[SweepScore], task: str, metric: str) -> dict[str, Any]:
    """Returns the name of a task with the metric that is shown, and its direction."""
    first = next(s.row for s in scores if (s.row.name, s.row.metric) == (task, metric))
    return {
        "task": task,
        "metric": metric,
        "filter": first.filter,
        "higher": first.higher_is_better,
    }


def _series(scores: Sequence[SweepScore]) -> list[dict[str, Any]]:
    """Returns the curves of one task: one per model and setting, sorted by step."""
    curves: dict[str, list[dict[str, Any]]] = {}
    for score in scores:
        if score.run.step is not None:
            others = [label for axis, label in score.settings.items() if axis != CHECKPOINT]
            point = {"step": score.run.step, **_value(score)}
            curves.setdefault(" ".join([score.run.model, *others]), []).append(point)
    return [
        {"label": label, "points": sorted(points, key=lambda point: int(point["step"]))}
        for label, points in curves.items()
    ]


def _value(score: SweepScore) -> dict[str, Any]:
    """Returns a score with its interval; None in place of what is not finite."""
    ends = score.interval(LEVEL) or (math.nan, math.nan)
    low, high = (end if math.isfinite(end) else None for end in ends)
    value = score.row.value if math.isfinite(score.row.value) else None
    return {"value": value, "low": low, "high": high, "n": score.row.documents}
