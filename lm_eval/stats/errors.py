"""Standard errors in closed form, of one task and of several joined."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np


def sample_stddev(values: Sequence[float]) -> float:
    """The standard deviation with Bessel's correction."""
    return float(np.std(np.asarray(values, dtype=float), ddof=1))


def mean_stderr(values: Sequence[float]) -> float:
    """The standard error of a mean: s / sqrt(n)."""
    return sample_stddev(values) / math.sqrt(len(values))


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
