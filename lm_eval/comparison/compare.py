"""Compares runs task by task and group by group; contains `lm_eval.compare`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from pathlib import Path
from typing import Any

from lm_eval.api.group import Group
from lm_eval.comparison.differences import (
    IDENTICAL,
    Difference,
    TestSettings,
    score_difference,
)
from lm_eval.comparison.pairing import common_documents, setting_differences
from lm_eval.comparison.scored_runs import Key, ScoredRun, load_runs
from lm_eval.errors import ConfigError, DataError
from lm_eval.stats.intervals import normal_interval
from lm_eval.stats.multiple_tests import benjamini_hochberg, holm
from lm_eval.stats.power import detectable_difference, documents_needed


@dataclass(frozen=True)
class Row:
    """The comparison of two runs in one score of a task or group.

    Attributes:
        first: the label of the first run.
        second: the label of the second run.
        name: the name of the task or group.
        metric: the metric.
        filter: the filter pipeline it is computed under.
        higher_is_better: the direction of the metric; None if it is not known.
        difference: the first score minus the second.
        detectable: the smallest true difference that this comparison finds with a probability of
            80 %; nan if it is not known.
        group: whether this is the score of a group.
        p_holm: the p-value corrected for all tasks by Holm's method.
        p_bh: the p-value corrected by the method of Benjamini and Hochberg.
        unequal: what differs between the runs besides the model, if the comparison was forced.
    """

    first: str
    second: str
    name: str
    metric: str
    filter: str
    higher_is_better: bool | None
    difference: Difference
    detectable: float
    group: bool = False
    p_holm: float = math.nan
    p_bh: float = math.nan
    unequal: Sequence[str] = ()

    @property
    def better(self) -> str | None:
        """The label of the better run; None if the interval of the difference contains 0."""
        low, high = self.difference.interval
        if math.isnan(low) or low <= 0 <= high:
            return None
        above = low > 0
        return self.first if above == (self.higher_is_better is not False) else self.second

    def documents_for(self, wanted: float) -> int | None:
        """Returns how many documents find a difference of `wanted` with a probability of 80 %.

        None if the standard error of the difference is not known.
        """
        difference = self.difference
        if math.isnan(difference.stderr):
            return None
        variance = difference.stderr**2 * difference.documents
        return documents_needed(wanted, variance) if variance > 0 else 2


@dataclass(frozen=True)
class Comparison:
    """What `lm-eval compare` prints.

    Attributes:
        runs: the runs, in the order given.
        rows: one per pair of runs, task or group, metric and filter pipeline.
        confidence: the level of the intervals.
        chat_templates: the chat templates by label, if they differ.
    """

    runs: Sequence[ScoredRun]
    rows: Sequence[Row]
    confidence: float
    chat_templates: Mapping[str, Any] = field(default_factory=dict)

    def row(self, name: str, metric: str | None = None) -> Row:
        """Returns the first row of a task or group, of `metric` if it is given.

        Raises `KeyError` if there is none.
        """
        for row in self.rows:
            if row.name == name and metric in (None, row.metric):
                return row
        raise KeyError(name if metric is None else f"{name}: {metric}")


def compare(
    *paths: str | Path,
    tasks: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
    confidence: float = 0.95,
    all_pairs: bool = False,
    force: bool = False,
    include_path: Sequence[str] = (),
    data_dir: str | None = None,
    draws: int = 10_000,
    keep_requests: bool = False,
) -> Comparison:
    """Compares stored runs document by document and returns the differences.

    Args:
        paths: two or more runs: folders of runs, or sample logs, also of the published harness.
        tasks: compare only these tasks.
        metrics: compare only these metrics.
        confidence: the level of intervals.
        all_pairs: whether to compare every pair of runs; by default each with the first.
        force: whether to compare runs with different settings; the rows then say what differs.
        include_path: additional folders with tasks.
        data_dir: a mirror of the data.
        draws: the number of random permutations, and of bootstrap samples.
        keep_requests: whether the tasks of `Comparison.runs` keep prompts and answers.

    Raises:
        ConfigError: fewer than two runs, or a setting that is out of range.
        OutputError: a path contains neither a run nor sample logs.
        DataError: runs that cannot be compared; the message says why.
    """
    if len(paths) < 2:
        raise ConfigError("compare needs two or more runs: the folders of their --output_path.")
    if not 0 < confidence < 1:
        raise ConfigError(f"the confidence level must be between 0 and 1, not {confidence}.")
    runs = load_runs(paths, tasks, metrics, include_path, data_dir, keep_requests)
    return compare_runs(runs, TestSettings(confidence, draws), all_pairs, force)


def compare_runs(
    runs: Sequence[ScoredRun], settings: TestSettings, all_pairs: bool = False, force: bool = False
) -> Comparison:
    """Compares loaded runs; the arguments and errors are those of `compare`."""
    pairs = combinations(runs, 2) if all_pairs else ((runs[0], other) for other in runs[1:])
    rows: list[Row] = []
    for first, second in pairs:
        own = list(_task_rows(first, second, settings, force))
        if not own:
            raise DataError(
                f"{first.path} and {second.path}: no document was scored in both runs, so they "
                "cannot be compared. Run both with the same --limit or --samples."
            )
        rows += [*own, *_group_rows(first, own, settings.confidence)]
    templates = {run.label: run.chat_template for run in runs}
    return Comparison(
        runs,
        _corrected(rows),
        settings.confidence,
        templates if len(set(map(str, templates.values()))) > 1 else {},
    )


def _task_rows(
    first: ScoredRun, second: ScoredRun, settings: TestSettings, force: bool
) -> Iterator[Row]:
    """Yields the rows of all tasks that two runs have in common.

    Raises `DataError` if something besides the model differs, unless `force` is set.
    """
    for name, task in first.tasks.items():
        other = second.tasks.get(name)
        if other is None:
            continue
        unequal = setting_differences(task, other)
        if unequal and not force:
            raise DataError(
                f"task {name!r}: the runs differ in more than the model: {'; '.join(unequal)} "
                f"({first.path}, {second.path}). Run both with the same settings, or pass --force "
                "to compare them all the same."
            )
        pairs = common_documents(task, other)
        for key in _common_keys(task.scores, other.scores):
            one, two = task.scores[key], other.scores[key]
            difference = score_difference(one, two, pairs, task.clusters, settings)
            if difference is not None:
                yield Row(
                    first.label,
                    second.label,
                    name,
                    *key,
                    one.higher_is_better,
                    difference,
                    detectable_difference(difference.stderr, 1 - settings.confidence),
                    unequal=unequal,
                )


def _common_keys(one: Mapping[Key, Any], two: Mapping[Key, Any]) -> list[Key]:
    return [key for key in one if key in two]


def _group_rows(run: ScoredRun, rows: Sequence[Row], confidence: float) -> Iterator[Row]:
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
    return replace(rows[0], name=name, difference=difference, detectable=detectable, group=True)


def _normal_p_value(value: float, stderr: float) -> float:
    if stderr == 0:
        return 1.0 if value == 0 else 0.0
    return math.erfc(abs(value) / stderr / math.sqrt(2))


def _corrected(rows: Sequence[Row]) -> list[Row]:
    """Returns the rows with p-values corrected for the number of tests of tasks."""
    tested = [
        i for i, row in enumerate(rows) if not row.group and not math.isnan(row.difference.p_value)
    ]
    p_values = [rows[i].difference.p_value for i in tested]
    corrected = dict(
        zip(tested, zip(holm(p_values), benjamini_hochberg(p_values), strict=True), strict=True)
    )
    return [
        replace(row, p_holm=corrected[i][0], p_bh=corrected[i][1]) if i in corrected else row
        for i, row in enumerate(rows)
    ]
