"""Closed-form standard errors of means.

They cover independent documents, documents in clusters, and means over several tasks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np

Floats = Sequence[float] | np.ndarray[Any, np.dtype[np.float64]]


def sample_stddev(values: Floats) -> float:
    """Returns the sample standard deviation of `values` (denominator n - 1).

    Returns nan for fewer than two values.
    """
    return float(np.std(np.asarray(values, dtype=float), ddof=1))


def mean_stderr(values: Floats) -> float:
    """Returns the standard error of the mean of independent `values`: s / sqrt(n).

    Here s is the sample standard deviation. Returns nan for a single value.
    """
    return sample_stddev(values) / math.sqrt(len(values))


def cluster_codes(clusters: Sequence[Hashable]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the cluster of each document as an integer: 0, 1, 2 … in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(c, len(numbers)) for c in clusters], dtype=np.int64)


def clustered_stderr(values: Floats, clusters: Sequence[Hashable]) -> float:
    """Returns the cluster-robust standard error of the mean of `values`.

    Documents of the same cluster, such as questions about one passage, have correlated scores, so
    they carry less information than independent ones. With C clusters and n documents, the error is
    sqrt(C/(C-1) · Σ_c (Σ_{i in c} (s_i - mean))²) / n. If every cluster has one document, this is
    s / sqrt(n). Returns nan if there is only one cluster.

    Args:
        values: the score of each document.
        clusters: the cluster of each document, in the same order.
    """
    scores, codes = np.asarray(values, dtype=float), cluster_codes(clusters)
    deviations = np.bincount(codes, weights=scores - scores.mean())
    count = len(deviations)
    if count < 2:
        return math.nan
    return float(math.sqrt(count / (count - 1) * (deviations @ deviations)) / len(scores))


def pooled_sample_stderr(stderrs: Sequence[float], sizes: Sequence[int]) -> float:
    """Returns the standard error of a mean over tasks that is weighted by their sizes.

    It is computed from the pooled variance. `stderrs` and `sizes` hold the standard error and the
    number of documents of each task. Returns nan if every task has only one document.
    """
    errors, counts = np.asarray(stderrs, dtype=float), np.asarray(sizes, dtype=float)
    variances = errors**2 * counts
    pooled = ((counts - 1) * variances).sum() / (counts.sum() - len(counts))
    return float(np.sqrt(pooled / counts.sum()))


def unweighted_mean_stderr(stderrs: Sequence[float]) -> float:
    """Returns the standard error of an unweighted mean over k tasks: sqrt(Σ stderr²) / k."""
    errors = np.asarray(stderrs, dtype=float)
    return float(np.sqrt((errors**2).sum()) / len(errors))
