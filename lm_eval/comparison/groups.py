"""Compares groups: their differences are weighted means of those of their tasks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

from lm_eval.api.group import Group
from lm_eval.comparison.differences import IDENTICAL, Difference
from lm_eval.comparison.rows import Row
from lm_eval.comparison.scored_runs import ScoredRun
from lm_eval.stats.intervals import normal_interval
from lm_eval.stats.power import detectable_difference


def group_rows(run: ScoredRun, rows: Sequence[Row], confidence: float) -> Iterator[Row]:
    """Yields the rows of the groups whose tasks were all compared.

    A group's difference is the mean of those of its tasks, with the weights of the group.
    """
    found = {(row.name, row.metric, row.filter): row for row in rows}
    for group in run.groups.values():
        names = [task.task_name for task in group.get_all_tasks()]
        for metric, pipeline, by_size in _aggregated_metrics(group, rows):
            own = [found.get((name, metric, pipeline)) for name in names]
            members = [row for row in own if row is not None]
            if members and len(members) == len(names):
                yield _group_row(group.name, members, by_size, confidence)


def _aggregated_metrics(group: Group, rows: Sequence[Row]) -> Iterator[tuple[str, str, bool]]:
    """Yields metric, filter pipeline and whether tasks are weighted by size, for each mean."""
    for wanted in group.aggregate_metric_list or ():
        if callable(wanted.aggregation):
            continue
        given = wanted.filter_list
        pipelines = [given] if isinstance(given, str) else given
        for metric, pipeline in dict.fromkeys((row.metric, row.filter) for row in rows):
            if metric == wanted.metric and (pipelines is None or pipeline in pipelines):
                yield metric, pipeline, wanted.weight_by_size


def _group_row(name: str, rows: Sequence[Row], by_size: bool, confidence: float) -> Row:
    """Returns the row of a group from those of its tasks, which have no documents in common."""
    differences = [row.difference for row in rows]
    sizes = [one.documents if by_size else 1 for one in differences]
    total = sum(sizes)
    weights = [size / total for size in sizes]

    def weighted(values: Sequence[float]) -> float:
        return sum(w * value for w, value in zip(weights, values, strict=True))

    value = weighted([one.value for one in differences])
    stderr = math.hypot(*(w * one.stderr for w, one in zip(weights, differences, strict=True)))
    wins = [one.first_wins for one in differences], [one.second_wins for one in differences]
    difference = Difference(
        first=weighted([one.first for one in differences]),
        second=weighted([one.second for one in differences]),
        value=value,
        stderr=stderr,
        interval=normal_interval(value, stderr, confidence),
        p_value=_normal_p_value(value, stderr),
        test=IDENTICAL if all(one.test == IDENTICAL for one in differences) else "normal",
        documents=sum(one.documents for one in differences),
        clusters=sum(one.clusters for one in differences),
        first_wins=None if None in wins[0] else sum(n or 0 for n in wins[0]),
        second_wins=None if None in wins[1] else sum(n or 0 for n in wins[1]),
    )
    detectable = detectable_difference(stderr, 1 - confidence)
    return replace(
        rows[0],
        name=name,
        difference=difference,
        detectable=detectable,
        group=True,
        unequal=list(dict.fromkeys(one for row in rows for one in row.unequal)),
        first_only=sum(row.first_only for row in rows),
        second_only=sum(row.second_only for row in rows),
    )


def _normal_p_value(value: float, stderr: float) -> float:
    if stderr == 0:
        return 1.0 if value == 0 else 0.0
    return math.erfc(abs(value) / stderr / math.sqrt(2))
