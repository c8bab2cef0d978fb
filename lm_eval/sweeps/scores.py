"""The scores of a sweep: as flat rows, and as a table of models and settings by tasks."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.markdown import table
from lm_eval.results.score_rows import ScoreRow, score_rows
from lm_eval.stats.intervals import normal_interval
from lm_eval.sweeps.matrix import CHECKPOINT, MODELS
from lm_eval.sweeps.record import RecordedRun, SweepRecord

#: Axes that are part of the model's name, or that are columns of the table.
_NOT_SETTINGS = (MODELS, "model", "model_args", "tasks")


@dataclass(frozen=True)
class SweepScore:
    """One score of one run."""

    run: RecordedRun
    row: ScoreRow

    @property
    def settings(self) -> dict[str, str]:
        """The labels of the run's settings, without those of its model and tasks."""
        return {k: v for k, v in self.run.labels.items() if k not in _NOT_SETTINGS}

    def interval(self, level: float) -> tuple[float, float] | None:
        """Returns a confidence interval: that of the results, or one by the standard error."""
        if self.row.low is not None and self.row.high is not None:
            return self.row.low, self.row.high
        if self.row.stderr is None:
            return None
        return normal_interval(self.row.value, self.row.stderr, level)


def all_scores(record: SweepRecord) -> list[SweepScore]:
    """Returns every score of every run that has results."""
    return [
        SweepScore(run, row) for run, results in record.results() for row in score_rows(results)
    ]


def main_scores(record: SweepRecord, metric: str | None = None) -> list[SweepScore]:
    """Returns one score per run and task: that of a metric, or of the first one of each task.

    Members of groups that have a score are left out. Raises `ConfigError` if no task has the
    metric, which is a name or `metric,filter`.
    """
    chosen: list[SweepScore] = []
    for run, results in record.results():
        rows = list(score_rows(results))
        scored = {row.name for row in rows}
        groups = results.get("group_subtasks") or {}
        inside = {m for name, members in groups.items() if name in scored for m in members}
        taken: set[str] = set()
        for row in rows:
            fits = metric is None or metric in (row.metric, f"{row.metric},{row.filter}")
            if fits and row.name not in inside and row.name not in taken:
                taken.add(row.name)
                chosen.append(SweepScore(run, row))
    if metric is not None and not chosen and any(run.results for run in record.runs):
        known = sorted({score.row.metric for score in all_scores(record)})
        raise ConfigError(
            f"no task of the sweep has the metric {metric!r}. It has {', '.join(known)}."
        )
    return chosen


@dataclass(frozen=True)
class Pivot:
    """A table with one line per model and setting, and one column per task.

    Attributes:
        settings: the names of the settings that vary.
        tasks: for each column the task and its metric.
        lines: for each line the model, the labels of its settings, and its scores by task; None
            where it has none.
    """

    settings: Sequence[str]
    tasks: Sequence[tuple[str, str]]
    lines: Sequence[tuple[str, Sequence[str], Sequence[SweepScore | None]]]


def pivot(scores: Sequence[SweepScore]) -> Pivot:
    """Returns scores, one per run and task, as a table of models and settings by tasks."""
    settings = list(dict.fromkeys(name for score in scores for name in score.settings))
    tasks = list(dict.fromkeys((score.row.name, score.row.metric) for score in scores))
    found: dict[tuple[str, ...], dict[tuple[str, str], SweepScore]] = {}
    for score in scores:
        line = (score.run.model, *(score.settings.get(name, "") for name in settings))
        found.setdefault(line, {})[score.row.name, score.row.metric] = score
    lines = [
        (model, labels, [by_task.get(task) for task in tasks])
        for (model, *labels), by_task in found.items()
    ]
    return Pivot(settings, tasks, lines)


def as_markdown(record: SweepRecord, metric: str | None = None) -> str:
    """Returns the table of models and settings by tasks, scores with ± their standard errors."""
    found = pivot(main_scores(record, metric))
    headers = ["Model", *found.settings, *(f"{task} ({name})" for task, name in found.tasks)]
    lines = [
        [model, *labels, *(_shown(score) for score in scores)]
        for model, labels, scores in found.lines
    ]
    return table(headers, lines, headers[1 + len(found.settings) :])


def _shown(score: SweepScore | None) -> str:
    if score is None:
        return "–"
    value = f"{score.row.value:.4f}"
    return value if score.row.stderr is None else f"{value} ± {score.row.stderr:.4f}"


def as_rows(record: SweepRecord) -> list[dict[str, Any]]:
    """Returns one dictionary per run, task, metric and filter pipeline."""
    axes = list(dict.fromkeys(axis for run in record.runs for axis in run.labels))
    rows = []
    for score in all_scores(record):
        values = asdict(score.row)
        labels: Mapping[str, str] = score.run.labels
        rows.append(
            {
                "run": score.run.name,
                "model": score.run.model,
                **{axis: labels.get(axis) for axis in axes if axis != "model"},
                **({"step": score.run.step} if CHECKPOINT in axes else {}),
                "task": values.pop("name"),
                **values,
                "results": score.run.results,
            }
        )
    return rows


def as_csv(record: SweepRecord) -> str:
    """Returns the scores as CSV, one line per run, task, metric and filter pipeline."""
    rows = as_rows(record)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]) if rows else ["run"], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def as_json(record: SweepRecord) -> str:
    """Returns the runs and their scores as a JSON object."""
    content = {"runs": [asdict(run) for run in record.runs], "scores": as_rows(record)}
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def as_text(record: SweepRecord, metric: str | None = None) -> str:
    """Returns the table, followed by the runs that failed and why."""
    parts = []
    if any(run.results for run in record.runs):
        parts.append(as_markdown(record, metric))
    if record.failed:
        lines = [f"  {run.name}: {run.message}" for run in record.failed]
        parts.append("\n".join([f"{len(lines)} of {len(record.runs)} runs failed:", *lines]) + "\n")
    return "\n".join(parts)
