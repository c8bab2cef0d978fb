"""Aggregates the metric values of documents into the scores of tasks and groups."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.group import Group
from lm_eval.errors import EvalError, with_location
from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.uncertainty import confidence_interval, standard_error
from lm_eval.results.samples import samples_of
from lm_eval.results.schema import Summary
from lm_eval.scoring import TaskScores, third_party_error
from lm_eval.stats.intervals import Interval, normal_interval

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class UncertaintyConfig:
    """How the uncertainty of scores is estimated and reported."""

    bootstrap_iters: int
    """Number of bootstrap samples for standard errors that have no closed form."""
    confidence: float | None = None
    """Level of the confidence intervals, for example 0.95; None for no intervals."""
    cluster: str | None = None
    """Column whose value defines the clusters of clustered standard errors, for tasks that have it.

    Other tasks, and all tasks if None, use the column that their configuration sets.
    """


@dataclass(frozen=True)
class Score:
    """The score of one metric under one filter pipeline."""

    value: Any
    stderr: float | None
    """The standard error; None if there is none."""
    interval: Interval | None
    """The confidence interval; None if none is wanted, or the score has no standard error."""


@dataclass
class TaskSummary:
    """The row of one task in the results, and data about it that is stored in other fields."""

    row: dict[str, Any]
    intervals: dict[str, Interval] = field(default_factory=dict)
    """Confidence intervals by `metric,filter`."""
    clusters: dict[str, Any] | None = None
    """Column (`by`) and number (`count`) of the clusters; None without clustering."""
    extraction_failed: dict[str, int] = field(default_factory=dict)
    """Number of documents without an extracted answer, by filter pipeline."""


def summarize(
    scores: Mapping[str, TaskScores],
    groups: Mapping[str, Group],
    uncertainty: UncertaintyConfig,
    keep_samples: bool,
) -> Summary:
    """Returns the results of tasks and groups: one row each, and the fields of `Summary`.

    `scores` are the metric values by task, and `groups` the groups by name. If `keep_samples` is
    set, the return value contains `samples`.
    """
    summaries = {name: summarize_task(name, scored, uncertainty) for name, scored in scores.items()}
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
        try:
            rows[group.name] = group.aggregate(rows)
        except EvalError:
            raise
        except BaseException as error:
            what = f"group {group.name!r}: aggregating its scores"
            raise third_party_error(what, error) from error
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
    # Not stored in the rows, because readers of published results treat every `a,b` key there as a
    # score.
    failures = {name: s.extraction_failed for name, s in summaries.items() if s.extraction_failed}
    if failures:
        results["extraction_failed"] = failures
    missing = {name: scored.repeats_without_answer() for name, scored in scores.items()}
    if missing := {name: counts for name, counts in missing.items() if counts}:
        results["repeats_without_answer"] = missing
    stopped = {name: scored.length_stopped() for name, scored in scores.items()}
    if known := {name: count for name, count in stopped.items() if count is not None}:
        results["length_stopped"] = known
    tokens = {name: scored.answer_tokens() for name, scored in scores.items()}
    if counted := {name: counts for name, counts in tokens.items() if counts is not None}:
        results["answer_tokens"] = counted
    if empty := {name: count for name, one in scores.items() if (count := one.empty_answers())}:
        results["empty_answers"] = empty
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


def summarize_task(name: str, scored: TaskScores, uncertainty: UncertaintyConfig) -> TaskSummary:
    """Returns the row of a task, with its scores and their standard errors.

    A score is stored under `metric,filter` and its standard error, or `N/A`, under
    `metric_stderr,filter`. A metric without an aggregation gets the mean, with a warning. If some
    documents have no value for a metric, the row also contains `sample_count`. Raises `EvalError`
    if an aggregation function fails or returns None.
    """
    functions = scored.task.aggregation()
    columns = scored.columns()
    counts = {key: len(column.values) for key, column in columns.items()}
    row: dict[str, Any] = {
        "name": name,
        "alias": scored.task.config.task_alias or name,
        "sample_len": max(counts.values(), default=0),
    }
    summary = TaskSummary(row, extraction_failed=scored.extraction_failed())
    shared = clusters_of(scored, uncertainty.cluster)
    if shared is not None:
        by, clusters = shared
        summary.clusters = {"by": by, "count": len(set(clusters))}
        if len(set(clusters)) == 1:
            logger.warning(
                "task %s: all its documents belong to one cluster (%s), so its scores have no "
                "standard error. Choose another column with --cluster.",
                name,
                by,
            )
    expected = {p: scored.documents - scored.left_out(p) for p in scored.pipelines}
    for pipeline in (pipeline for pipeline, count in expected.items() if not count):
        logger.warning(
            "task %s: the filters of pipeline %s left out all documents, so it has no scores.",
            name,
            pipeline,
        )
    if not columns and any(expected.values()):
        logger.warning(
            "task %s: none of its metrics returned a value, so it has no scores. Check its "
            "metric_list.",
            name,
        )
    if any(count != expected[pipeline] for (_, pipeline), count in counts.items()):
        logger.warning(
            "task %s: some metrics have no value for some documents. Each score is computed from "
            "the documents that have a value.",
            name,
        )
    if set(counts.values()) - {scored.documents}:
        row["sample_count"] = {f"{m},{pipeline}": n for (m, pipeline), n in counts.items()}
    for (metric, pipeline), column in columns.items():
        aggregation = functions.get(metric)
        if aggregation is None:
            logger.warning(
                "task %s: no aggregation is defined for the metric %s; its mean is reported. Set "
                "an aggregation in metric_list, or return one from Task.aggregation().",
                name,
                metric,
            )
            aggregation = mean
        clusters_of_values = None if shared is None else [shared[1][i] for i in column.positions]
        found = score_values(
            name, metric, aggregation, column.values, uncertainty, clusters_of_values
        )
        row[f"{metric},{pipeline}"] = found.value
        unknown = found.stderr is None or (shared is not None and math.isnan(found.stderr))
        row[f"{metric}_stderr,{pipeline}"] = "N/A" if unknown else found.stderr
        if found.interval is not None:
            summary.intervals[f"{metric},{pipeline}"] = found.interval
    return summary


def score_values(
    name: str,
    metric: str,
    aggregation: Callable[..., Any],
    values: Sequence[Any],
    uncertainty: UncertaintyConfig,
    clusters: Sequence[Hashable] | None,
) -> Score:
    """Returns the aggregated values of a metric, with standard error and confidence interval.

    Raises `EvalError` if the aggregation function fails or returns None.

    Args:
        name: the name of the task, for messages.
        metric: the name of the metric, for messages.
        aggregation: turns the values into one score.
        values: the value of each document; at least one.
        uncertainty: how the uncertainty is estimated.
        clusters: the cluster of each document; None without clustering.
    """
    try:
        value = aggregation(values)
        if value is None:
            raise EvalError(
                f"task {name!r}: the aggregation of {metric} returned None; it must return a "
                "number."
            )
        stderr = standard_error(aggregation, values, uncertainty.bootstrap_iters, clusters)
    except EvalError as problem:
        raise with_location(problem, f"task {name!r}") from problem
    except BaseException as problem:
        raise third_party_error(f"task {name!r}: aggregating {metric} failed", problem) from problem
    interval = None
    if uncertainty.confidence is not None and isinstance(value, (int, float)):
        interval = confidence_interval(
            aggregation, values, value, stderr, uncertainty.confidence, clusters
        )
    return Score(value, stderr, interval)


def clusters_of(scored: TaskScores, column: str | None) -> tuple[str, list[Hashable]] | None:
    """Returns the column that defines clusters and the cluster of each document.

    Uses `column`, the setting of the run, if the documents have it, and else `cluster` of the
    task's configuration. Returns None if that is not set either.
    """
    task = scored.task
    by = column if column and task.has_column(column) else task.get_config("cluster")
    return (by, scored.clusters(by)) if by else None


def _group_intervals(row: Mapping[str, Any], confidence: float | None) -> dict[str, Interval]:
    """Returns confidence intervals of a group's aggregated scores by `metric,filter`.

    Uses the normal approximation, because these scores are means over many documents. A score
    without a standard error gets none. Empty if `confidence` is None.
    """
    intervals: dict[str, Interval] = {}
    for key in row if confidence is not None else ():
        metric, comma, pipeline = key.partition(",")
        error = row.get(f"{metric}_stderr,{pipeline}")
        if comma and isinstance(error, float) and confidence is not None:
            intervals[key] = normal_interval(row[key], error, confidence)
    return intervals


def _shots(config: Mapping[str, Any]) -> Any:
    """Returns the number of few-shot examples to report for a task.

    `metadata.num_fewshot` of the configuration takes precedence over `num_fewshot`. 0 if the
    configuration has neither.
    """
    shown = (config.get("metadata") or {}).get("num_fewshot")
    return config.get("num_fewshot", 0) if shown is None else shown


def _children_first(groups: Iterable[Group]) -> list[Group]:
    """Returns the groups and their subgroups, each after the subgroups that it contains."""
    ordered: dict[str, Group] = {}

    def visit(group: Group) -> None:
        if group.name not in ordered:
            for child in group.get_all_groups(recursive=False):
                visit(child)
            ordered.setdefault(group.name, group)

    for group in groups:
        visit(group)
    return list(ordered.values())


def _inherit_shots(group: Group, shots: dict[str, Any]) -> None:
    """Adds the group's number of few-shot examples to `shots`.

    It is `metadata.num_fewshot` of the group, or else the value that all its children share. If
    they have different values, or none is known, nothing is added.
    """
    shown = (group.metadata or {}).get("num_fewshot")
    seen = [shots[child] for child in group.child_names if child in shots]
    if shown is not None:
        shots[group.name] = shown
    elif seen and all(value == seen[0] for value in seen):
        shots[group.name] = seen[0]


def _inherit_directions(group: Group, directions: dict[str, dict[str, Any]]) -> None:
    """Adds to `directions` whether higher is better for each metric of the group's children.

    The value is None if the children disagree.
    """
    inherited: dict[str, Any] = {}
    for child in group.child_names:
        for metric, better in directions.get(child, {}).items():
            if inherited.setdefault(metric, better) != better:
                inherited[metric] = None
    if inherited:
        directions[group.name] = inherited
