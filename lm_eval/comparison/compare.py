"""Compares runs task by task and group by group; contains `lm_eval.compare`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

from lm_eval.comparison.differences import TestSettings, score_difference
from lm_eval.comparison.groups import group_rows
from lm_eval.comparison.pairing import pair_documents
from lm_eval.comparison.rows import Comparison, Row
from lm_eval.comparison.scored_runs import Key, ScoredRun, load_runs
from lm_eval.errors import ConfigError, DataError
from lm_eval.stats.multiple_tests import benjamini_hochberg, holm
from lm_eval.stats.power import detectable_difference


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
        force: whether to compare runs with different settings, and the answered documents of
            unfinished tasks; the rows then say what differs.
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
    runs = load_runs(paths, tasks, metrics, include_path, data_dir, keep_requests, force)
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
            raise DataError(f"{first.path} and {second.path}: {_why_not(first, second)}")
        rows += [*own, *group_rows(first, own, settings.confidence)]
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
        paired = pair_documents(task, other)
        if paired.unequal and not force:
            raise DataError(
                f"task {name!r}: the runs differ in more than the model: "
                f"{'; '.join(paired.unequal)} "
                f"({first.path}, {second.path}). Run both with the same settings, or pass --force "
                "to compare them all the same."
            )
        for key in _common_keys(task.scores, other.scores):
            one, two = task.scores[key], other.scores[key]
            difference = score_difference(one, two, paired.pairs, task.clusters, settings)
            if difference is not None:
                yield Row(
                    first.label,
                    second.label,
                    name,
                    *key,
                    one.higher_is_better,
                    difference,
                    detectable_difference(difference.stderr, 1 - settings.confidence),
                    unequal=paired.unequal,
                    first_only=paired.first_only,
                    second_only=paired.second_only,
                    alpha=1 - settings.confidence,
                )


def _why_not(first: ScoredRun, second: ScoredRun) -> str:
    """Returns why two runs have nothing to compare."""
    names = [name for name in first.tasks if name in second.tasks]
    if not names:
        return "no task has all its answers in both runs, so they cannot be compared."
    if not any(_common_keys(first.tasks[n].scores, second.tasks[n].scores) for n in names):
        return "no metric is in both runs, so they cannot be compared. Check --metrics."
    return (
        "no document was scored in both runs, so they cannot be compared. Run both with the same "
        "--limit or --samples."
    )


def _common_keys(one: Mapping[Key, Any], two: Mapping[Key, Any]) -> list[Key]:
    return [key for key in one if key in two]


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
