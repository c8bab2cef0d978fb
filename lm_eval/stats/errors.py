"""Standard errors in closed form: of one task, of clustered documents, of several tasks joined."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np


def sample_stddev(values: Sequence[float]) -> float:
    """The standard deviation with Bessel's correction."""
    return float(np.std(np.asarray(values, dtype=float), ddof=1))


def mean_stderr(values: Sequence[float]) -> float:
    """The standard error of a mean: s / sqrt(n)."""
    return sample_stddev(values) / math.sqrt(len(values))


def codes_of(clusters: Sequence[Hashable]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Each document's cluster as a number from 0, in order of appearance."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(c, len(numbers)) for c in clusters], dtype=np.int64)


def clustered_stderr(values: Sequence[float], clusters: Sequence[Hashable]) -> float:
    """The standard error of a mean over documents that come in clusters.

    Documents of one cluster (questions on one passage) err together, and count as less than as
    many independent ones: sqrt(C/(C-1) · Σ_c (Σ_{i in c} (s_i - mean))²) / n. With one document a
    cluster this is s / sqrt(n). One cluster alone says nothing of the spread: nan.
    """
    scores, codes = np.asarray(values, dtype=float), codes_of(clusters)
    deviations = np.bincount(codes, weights=scores - scores.mean())
    count = len(deviations)
    if count < 2:
        return math.nan
    return float(math.sqrt(count / (count - 1) * (deviations @ deviations)) / len(scores))


def pooled_sample_stderr(stderrs: Sequence[float], sizes: Sequence[int]) -> float:
    """The standard error of a size-weighted mean over tasks, from the pooled variance."""
    errors, counts = np.asarray(stderrs, dtype=float), np.asarray(sizes, dtype=float)
    variances = errors**2 * counts
    pooled = ((counts - 1) * variances).sum() / (counts.sum() - len(counts))
    return float(np.sqrt(pooled / counts.sum()))


def unweighted_mean_stderr(stderrs: Sequence[float]) -> float:
    """The standard error of a plain mean over k tasks: sqrt(sum of squares) / k."""
    errors = np.asarray(stderrs, dtype=float)
    return float(np.sqrt((errors**2).sum()) / len(errors))
