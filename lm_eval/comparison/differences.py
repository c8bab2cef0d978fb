"""The difference of two models in one score: its error, interval and significance."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval.comparison.scored_runs import Scores
from lm_eval.metrics.uncertainty import document_scores, replicate_scores
from lm_eval.stats.bootstrap import limit_replicates
from lm_eval.stats.intervals import Interval
from lm_eval.stats.paired import mcnemar_exact, paired_difference, sign_flip_test

Array = np.ndarray[Any, np.dtype[np.float64]]

IDENTICAL = "identical"
"""The name of the test of runs with equal scores on every document: there is nothing to test."""

BOOTSTRAP = "bootstrap"
"""The name of the test of scores that are not means of the scores of documents."""


@dataclass(frozen=True)
class Difference:
    """How much the first model's score is above the second's.

    Attributes:
        first: the score of the first model on the common documents.
        second: the score of the second model.
        value: `first - second`.
        stderr: the standard error of `value`; nan if it cannot be estimated.
        interval: the confidence interval of `value`.
        p_value: how likely a difference at least as large is between equally good models.
        test: the name of the test.
        documents: how many documents were compared.
        clusters: how many clusters they form; equal to `documents` if they are independent.
        first_wins: documents on which the first model's score is higher; None if scores of single
            documents cannot be compared.
        second_wins: documents on which the second model's score is higher.
    """

    first: float
    second: float
    value: float
    stderr: float
    interval: Interval
    p_value: float
    test: str
    documents: int
    clusters: int
    first_wins: int | None = None
    second_wins: int | None = None


@dataclass(frozen=True)
class TestSettings:
    """How differences are tested.

    Attributes:
        confidence: the level of intervals.
        draws: the number of random permutations, and of bootstrap samples of corpus metrics.
        seed: the seed of the random numbers.
    """

    confidence: float = 0.95
    draws: int = 10_000
    seed: int = 1234

    __test__ = False  # for pytest: not a class of tests


def score_difference(
    first: Scores,
    second: Scores,
    pairs: Sequence[tuple[int, int]],
    clusters: Sequence[Hashable] | None,
    settings: TestSettings,
) -> Difference | None:
    """Returns the difference of a metric between two runs; None without common documents.

    Means are compared document by document; other scores, such as BLEU or a correlation, by
    resampling documents for both models at once.

    Args:
        first: the values of the first run.
        second: those of the second.
        pairs: the positions of the common documents in both.
        clusters: the cluster of each document of the first run; None if they are independent.
        settings: how the difference is tested.
    """
    columns = [dict(zip(one.positions, one.values, strict=True)) for one in (first, second)]
    common = [(a, b) for a, b in pairs if a in columns[0] and b in columns[1]]
    if not common:
        return None
    one, two = [columns[0][a] for a, _ in common], [columns[1][b] for _, b in common]
    groups = None if clusters is None else [clusters[a] for a, _ in common]
    numbers = [document_scores(first.aggregation, items) for items in (one, two)]
    if numbers[0] is not None and numbers[1] is not None:
        values = np.asarray(numbers[0], dtype=float), np.asarray(numbers[1], dtype=float)
        return _mean_difference(*values, groups, settings)
    return _resampled_difference(one, two, first.aggregation, groups, settings)


def _mean_difference(
    first: Array, second: Array, clusters: Sequence[Hashable] | None, settings: TestSettings
) -> Difference:
    """Returns the difference of two means, tested exactly if all scores are 0 or 1."""
    differences = first - second
    found = paired_difference(differences, clusters, settings.confidence)
    wins, losses = int((differences > 0).sum()), int((differences < 0).sum())
    if not wins and not losses:
        p_value, test = 1.0, IDENTICAL
    elif clusters is None and np.isin(first, (0, 1)).all() and np.isin(second, (0, 1)).all():
        p_value, test = mcnemar_exact(wins, losses), "McNemar"
    else:
        p_value = sign_flip_test(differences, clusters, settings.draws, settings.seed)
        test = "sign flips"
    return Difference(
        first=float(first.mean()),
        second=float(second.mean()),
        value=found.value,
        stderr=found.stderr,
        interval=found.interval,
        p_value=p_value,
        test=test,
        documents=found.documents,
        clusters=found.clusters,
        first_wins=wins,
        second_wins=losses,
    )


def _resampled_difference(
    first: Sequence[Any],
    second: Sequence[Any],
    aggregation: Callable[..., Any],
    clusters: Sequence[Hashable] | None,
    settings: TestSettings,
) -> Difference:
    """Returns the difference of a corpus metric, by a paired bootstrap over documents or clusters.

    The p-value is twice the share of resampled differences on the other side of 0.
    """
    scores = float(aggregation(list(first))), float(aggregation(list(second)))
    value, count = scores[0] - scores[1], len(first if clusters is None else set(clusters))
    stderr, interval, p_value, test = math.nan, (math.nan, math.nan), math.nan, BOOTSTRAP
    if all(a == b for a, b in zip(first, second, strict=True)):
        stderr, interval, p_value, test = 0.0, (0.0, 0.0), 1.0, IDENTICAL
    elif count > 1:
        drawn = limit_replicates(settings.draws, len(first))
        one, two = (replicate_scores(aggregation, x, drawn, clusters) for x in (first, second))
        differences = (one - two)[np.isfinite(one - two)]
        if len(differences) > 1:
            stderr = float(differences.std(ddof=1))
            tail = (1 - settings.confidence) / 2
            low, high = np.quantile(differences, [tail, 1 - tail])
            interval = float(low), float(high)
            beyond = min(int((differences <= 0).sum()), int((differences >= 0).sum()))
            p_value = min(1.0, 2 * (beyond + 1) / (len(differences) + 1))
    return Difference(*scores, value, stderr, interval, p_value, test, len(first), count)
