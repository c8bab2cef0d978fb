"""The difference of two models on the same documents: its error, interval and significance.

Scores of two models on one document are correlated, because both find the same documents hard. The
differences document by document are free of that, so their standard error is smaller than the one
computed from the errors of two means.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval.stats.errors import Floats, cluster_codes, clustered_stderr, mean_stderr
from lm_eval.stats.intervals import Interval, regularized_beta, t_interval

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class PairedDifference:
    """The mean difference of two lists of scores.

    Attributes:
        value: the mean of the differences.
        stderr: its standard error; nan for a single document or cluster.
        interval: its confidence interval by Student's t distribution.
        documents: how many documents were compared.
        clusters: how many clusters they form; equal to `documents` if they are independent.
    """

    value: float
    stderr: float
    interval: Interval
    documents: int
    clusters: int


def paired_difference(
    differences: Floats,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> PairedDifference:
    """Returns the mean difference with its standard error and confidence interval.

    Args:
        differences: the score of the first model minus that of the second, one per document; for
            repeated answers, the difference of the means of a document's scores.
        clusters: the cluster of each document; by default documents are independent.
        confidence: the confidence level, such as 0.95.
    """
    values = np.asarray(differences, dtype=float)
    value = float(values.mean())
    if clusters is None:
        count, stderr = len(values), mean_stderr(values) if len(values) > 1 else math.nan
    else:
        count = int(cluster_codes(clusters).max()) + 1
        stderr = clustered_stderr(values, clusters)
    interval = (math.nan, math.nan)
    if not math.isnan(stderr):
        interval = t_interval(value, stderr, count - 1, confidence)
    return PairedDifference(value, stderr, interval, len(values), count)


def mcnemar_exact(first_only: int, second_only: int) -> float:
    """Returns the two-sided p-value of McNemar's exact test.

    If the models are equally good, each document that only one of them answers correctly is as
    likely to be the first's as the second's.

    Args:
        first_only: how many documents only the first model answers correctly.
        second_only: how many documents only the second model answers correctly.
    """
    count, fewer = first_only + second_only, min(first_only, second_only)
    if first_only == second_only:
        return 1.0
    # P(X <= fewer) of a binomial distribution with probability 1/2 is I_{1/2}(n - k, k + 1).
    return min(1.0, 2 * regularized_beta(0.5, count - fewer, fewer + 1))


EXACT_FLIPS = 14
"""Up to this many differences, all combinations of signs are computed."""


def sign_flip_test(
    differences: Floats,
    clusters: Sequence[Hashable] | None = None,
    draws: int = 10_000,
    seed: int = 1234,
) -> float:
    """Returns the two-sided p-value of a permutation test of the mean difference.

    If the models are equally good, exchanging their names on a document changes nothing, so the
    difference of each document (or the sum of each cluster) has either sign with equal
    probability. The p-value is the share of sign combinations with a sum at least as far from 0 as
    the observed one: over all combinations for few documents, over `draws` random ones and the
    observed one otherwise.

    Args:
        differences: the score of the first model minus that of the second, one per document.
        clusters: the cluster of each document; by default documents are independent.
        draws: the number of random sign combinations.
        seed: the seed of the random numbers.
    """
    values = np.asarray(differences, dtype=float)
    if clusters is not None:
        values = np.bincount(cluster_codes(clusters), weights=values)
    sizes, observed = np.abs(values[values != 0]), float(values.sum())
    if len(sizes) == 0:
        return 1.0
    limit = abs(observed) * (1 - 1e-12) - 1e-12 * float(sizes.max())
    if len(sizes) <= EXACT_FLIPS:
        sums = np.zeros(1)
        for size in sizes:
            sums = np.concatenate([sums - size, sums + size])
        return float(np.mean(np.abs(sums) >= limit))
    extreme = int(np.sum(np.abs(_random_sums(sizes, draws, seed)) >= limit))
    return (extreme + 1) / (draws + 1)


def _random_sums(sizes: Array, draws: int, seed: int) -> Array:
    """Returns `draws` sums of the sizes with random signs.

    Equal sizes are drawn together, as a binomial number of positive signs: scores of 0 and 1 have
    one size, which makes the test fast. Scores that are all different are drawn in blocks.
    """
    generator = np.random.default_rng(seed)
    distinct, counts = np.unique(sizes, return_counts=True)
    sums = np.zeros(draws)
    if len(distinct) * 4 <= len(sizes):
        for size, count in zip(distinct, counts, strict=True):
            sums += size * (2.0 * generator.binomial(count, 0.5, draws) - count)
        return sums
    block = max(1, 4_000_000 // draws)
    for start in range(0, len(sizes), block):
        part = sizes[start : start + block]
        bits = np.unpackbits(
            generator.integers(0, 256, (draws, (len(part) + 7) // 8), dtype=np.uint8), axis=1
        )[:, : len(part)]
        sums += bits @ (2.0 * part) - part.sum()
    return sums
