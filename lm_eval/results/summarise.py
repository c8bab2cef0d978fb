"""Aggregate per-document scores into the results of tasks and groups."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval.api.group import Group
from lm_eval.errors import EvalError
from lm_eval.metrics.aggregations import mean
from lm_eval.metrics.uncertainty import standard_error
from lm_eval.results.samples import samples_of
from lm_eval.results.schema import EvalResults
from lm_eval.scoring import TaskScores, failed

logger = logging.getLogger(__name__)


def summarise(
    scores: Mapping[str, TaskScores],
    groups: Mapping[str, Group],
    bootstrap_iters: int,
    keep_samples: bool,
) -> EvalResults:
    """The results: a row a task, a row a group, and what is needed to read them."""
    rows = {name: task_row(name, scored, bootstrap_iters) for name, scored in scores.items()}
    tasks = {name: scored.task for name, scored in scores.items()}
    configs = {name: task.dump_config() for name, task in tasks.items()}
    versions: dict[str, Any] = {name: task.VERSION for name, task in tasks.items()}
    shots: dict[str, Any] = {name: _shots(config) for name, config in configs.items()}
    directions = {name: dict(task.higher_is_better()) for name, task in tasks.items()}
    for group in _children_first(groups.values()):
        rows[group.name] = group.aggregate(rows)
        versions[group.name] = group.version
        _inherit_shots(group, shots)
        _inherit_directions(group, directions)
    results: EvalResults = {
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
    if keep_samples:
        results["samples"] = {name: samples_of(scored) for name, scored in scores.items()}
    return results


def task_row(name: str, scored: TaskScores, bootstrap_iters: int) -> dict[str, Any]:
    """A task's row: `metric,filter` and `metric_stderr,filter` for everything it reports."""
    functions = scored.task.aggregation()
    columns = scored.columns()
    row: dict[str, Any] = {
        "name": name,
        "alias": scored.task.config.task_alias or name,
        "sample_len": max(map(len, columns.values()), default=0),
    }
    counts = {len(values) for values in columns.values()}
    if not columns:
        logger.warning("%s: none of its metrics gave a value; check its metric_list.", name)
    if len(counts) > 1 or counts - {scored.documents}:
        logger.warning("%s: not every document was given every metric; means leave it out.", name)
    for (metric, pipeline), values in columns.items():
        aggregation = functions.get(metric)
        if aggregation is None:
            logger.warning("%s: no aggregation is known for %s; its mean is taken.", name, metric)
            aggregation = mean
        try:
            value = aggregation(values)
            error = standard_error(aggregation, values, bootstrap_iters)
        except Exception as problem:
            raise failed(f"task {name!r}: aggregating {metric}", problem) from problem
        if value is None:
            raise EvalError(f"task {name!r}: the aggregation of {metric} returned nothing.")
        row[f"{metric},{pipeline}"] = value
        row[f"{metric}_stderr,{pipeline}"] = "N/A" if error is None else error
    return row


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
