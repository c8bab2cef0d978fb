"""Aggregate per-document scores into the results of tasks and groups."""

from __future__ import annotations

import logging
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.group import Group
from lm_eval.errors import EvalError, located
from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.uncertainty import confidence_interval, standard_error
from lm_eval.results.samples import samples_of
from lm_eval.results.schema import Summary
from lm_eval.scoring import TaskScores, failed
from lm_eval.stats.intervals import Interval, normal_interval

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UncertaintyConfig:
    """How the uncertainty of scores is estimated and reported."""

    bootstrap_iters: int
    confidence: float | None = None
    cluster: str | None = None


@dataclass
class TaskSummary:
    """One task's row, and what is stored beside it."""

    row: dict[str, Any]
    intervals: dict[str, Interval] = field(default_factory=dict)
    clusters: dict[str, Any] | None = None
    extraction_failed: dict[str, int] = field(default_factory=dict)


def summarise(
    scores: Mapping[str, TaskScores],
    groups: Mapping[str, Group],
    uncertainty: UncertaintyConfig,
    keep_samples: bool,
) -> Summary:
    """Returns one row per task and per group, and what is needed to read them."""
    summaries = {name: summarise_task(name, scored, uncertainty) for name, scored in scores.items()}
    rows = {name: summary.row for name, summary in summaries.items()}
    tasks = {name: scored.task for name, scored in scores.items()}
    configs = {name: task.dump_config() for name, task in tasks.items()}
    versions: dict[str, Any] = {name: task.VERSION for name, task in tasks.items()}
    shots: dict[str, Any] = {name: _shots(config) for name, config in configs.items()}
    directions: dict[str, dict[str, Any]] = {
        name: dict(task.higher_is_better()) for name, task in tasks.items()
    }
    intervals = {name: summary.intervals for name, summary in summaries.items()}
    for group in _children_first(groups.values()):
        rows[group.name] = group.aggregate(rows)
        versions[group.name] = group.version
        intervals[group.name] = _group_intervals(rows[group.name], uncertainty.confidence)
        _inherit_shots(group, shots)
        _inherit_directions(group, directions)
    results: Summary = {
        "results": rows,
        "group_subtasks": {group.name: group.child_names for group in groups.values()},
        "configs": dict(sorted(configs.items())),
        "versions": dict(sorted(versions.items())),
        "n-shot": dict(sorted(shots.items())),
        "higher_is_better": dict(sorted(directions.items())),
        "n-samples": {
            name: {"original": len(task.eval_docs), "effective": rows[name]["sample_len"]}
            for name, task in tasks.items()
        },
    }
    aggregated = {name: rows[name] for name, group in groups.items() if group.has_aggregation}
    if aggregated:
        results["groups"] = aggregated
    # Beside the rows, not in them: readers of published results take every pair there for a score.
    failures = {name: s.extraction_failed for name, s in summaries.items() if s.extraction_failed}
    if failures:
        results["extraction_failed"] = failures
    clusters = {name: s.clusters for name, s in summaries.items() if s.clusters is not None}
    if clusters:
        results["clusters"] = clusters
    if uncertainty.confidence is not None:
        results["confidence"] = uncertainty.confidence
        results["intervals"] = {
            name: {key: list(ends) for key, ends in found.items()}
            for name, found in intervals.items()
            if found
        }
    if keep_samples:
        results["samples"] = {name: samples_of(scored) for name, scored in scores.items()}
    return results


def summarise_task(name: str, scored: TaskScores, uncertainty: UncertaintyConfig) -> TaskSummary:
    """Returns a task's row: `metric,filter` and `metric_stderr,filter` for all that it reports."""
    functions = scored.task.aggregation()
    columns = scored.columns()
    counts = {key: len(column.values) for key, column in columns.items()}
    row: dict[str, Any] = {
        "name": name,
        "alias": scored.task.config.task_alias or name,
        "sample_len": max(counts.values(), default=0),
    }
    summary = TaskSummary(row, extraction_failed=scored.extraction_failed())
    shared = _clusters(scored, uncertainty.cluster)
    if shared is not None:
        by, clusters = shared
        summary.clusters = {"by": by, "count": len(set(clusters))}
    if not columns:
        logger.warning("%s: none of its metrics gave a value; check its metric_list.", name)
    if set(counts.values()) - {scored.documents}:
        logger.warning("%s: not every document was given every metric; means leave it out.", name)
        row["sample_count"] = {f"{m},{pipeline}": n for (m, pipeline), n in counts.items()}
    for (metric, pipeline), column in columns.items():
        aggregation = functions.get(metric)
        if aggregation is None:
            logger.warning("%s: no aggregation is known for %s; its mean is taken.", name, metric)
            aggregation = mean
        own = None if shared is None else [shared[1][place] for place in column.places]
        try:
            value = aggregation(column.values)
            if value is None:
                raise EvalError(
                    f"task {name!r}: the aggregation of {metric} returned nothing; "
                    "it must return a number."
                )
            error = standard_error(aggregation, column.values, uncertainty.bootstrap_iters, own)
        except EvalError as problem:
            raise located(problem, f"task {name!r}") from problem
        except Exception as problem:
            raise failed(f"task {name!r}: aggregating {metric}", problem) from problem
        row[f"{metric},{pipeline}"] = value
        row[f"{metric}_stderr,{pipeline}"] = "N/A" if error is None else error
        if uncertainty.confidence is not None and isinstance(value, (int, float)):
            found = confidence_interval(
                aggregation, column.values, value, error, uncertainty.confidence, own
            )
            if found is not None:
                summary.intervals[f"{metric},{pipeline}"] = found
    return summary


def _clusters(scored: TaskScores, asked: str | None) -> tuple[str, list[Hashable]] | None:
    """By what the documents cluster, and their clusters: as the run asks, else as the task says."""
    task = scored.task
    by = asked if asked and task.has_column(asked) else task.get_config("cluster")
    return (by, scored.clusters(by)) if by else None


def _group_intervals(row: Mapping[str, Any], confidence: float | None) -> dict[str, Interval]:
    """Intervals of a group's joint scores, which are means over many documents."""
    intervals: dict[str, Interval] = {}
    for key in row if confidence is not None else ():
        metric, comma, pipeline = key.partition(",")
        error = row.get(f"{metric}_stderr,{pipeline}")
        if comma and isinstance(error, float) and confidence is not None:
            intervals[key] = normal_interval(row[key], error, confidence)
    return intervals


def _shots(config: Mapping[str, Any]) -> Any:
    """The number of examples; `metadata.num_fewshot` says what to show in its place."""
    shown = (config.get("metadata") or {}).get("num_fewshot")
    return config.get("num_fewshot", 0) if shown is None else shown


def _children_first(groups: Iterable[Group]) -> list[Group]:
    """Groups ordered so that each comes after the groups it holds."""
    ordered: dict[str, Group] = {}

    def visit(group: Group) -> None:
        for child in group.get_all_groups(recursive=False):
            visit(child)
        ordered.setdefault(group.name, group)

    for group in groups:
        visit(group)
    return list(ordered.values())


def _inherit_shots(group: Group, shots: dict[str, Any]) -> None:
    """A group's number of examples, where its children agree on one."""
    shown = (group.metadata or {}).get("num_fewshot")
    seen = [shots[child] for child in group.child_names if child in shots]
    if shown is not None:
        shots[group.name] = shown
    elif seen and all(value == seen[0] for value in seen):
        shots[group.name] = seen[0]


def _inherit_directions(group: Group, directions: dict[str, dict[str, Any]]) -> None:
    """A group's metric directions; None where its children disagree."""
    inherited: dict[str, Any] = {}
    for child in group.child_names:
        for metric, better in directions.get(child, {}).items():
            if inherited.setdefault(metric, better) != better:
                inherited[metric] = None
    if inherited:
        directions[group.name] = inherited
