"""Which differences a comparison can detect, and how many documents a difference needs.

The variance of the mean paired difference of n documents, with K_A and K_B answers each, is
(ω² + σ²_A / K_A + σ²_B / K_B) / n: ω² is the variance between documents of the expected difference,
σ²_A and σ²_B the variances between repeated answers to one document. All are estimated from the
paired scores themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lm_eval.stats.intervals import normal_quantile

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class DifferenceVariance:
    """The components of the variance of paired differences.

    Attributes:
        between: ω², the variance between documents of the expected difference.
        first: σ²_A, the variance between answers of the first model to one document.
        second: σ²_B, the same of the second model.
    """

    between: float
    first: float
    second: float

    def per_document(self, first_repeats: int = 1, second_repeats: int = 1) -> float:
        """Returns the variance of one document's difference for so many answers per document."""
        return self.between + self.first / first_repeats + self.second / second_repeats


def difference_variance(
    first: Sequence[Sequence[float]] | Array, second: Sequence[Sequence[float]] | Array
) -> DifferenceVariance:
    """Returns the components of the variance of paired differences.

    Without repeats, the variance between answers cannot be told from the one between documents, and
    all of it counts as the latter. An estimate of ω² below 0 is 0.

    Args:
        first: one row per document with the scores of the first model's answers.
        second: the same of the second model; the number of answers may differ.
    """
    tables = [np.asarray(scores, dtype=float) for scores in (first, second)]
    within = [
        float(table.var(axis=1, ddof=1).mean()) if table.shape[1] > 1 else 0.0 for table in tables
    ]
    total = float((tables[0].mean(axis=1) - tables[1].mean(axis=1)).var(ddof=1))
    repeated = sum(w / table.shape[1] for w, table in zip(within, tables, strict=True))
    return DifferenceVariance(max(0.0, total - repeated), *within)


def detectable_difference(stderr: float, alpha: float = 0.05, power: float = 0.8) -> float:
    """Returns the smallest true difference that a two-sided test detects with probability `power`.

    Args:
        stderr: the standard error of the difference.
        alpha: the significance level of the test.
        power: the wanted probability.
    """
    return (normal_quantile(1 - alpha / 2) + normal_quantile(power)) * stderr


def documents_needed(
    difference: float, variance: float, alpha: float = 0.05, power: float = 0.8
) -> int:
    """Returns how many documents detect a true difference with probability `power`.

    Args:
        difference: the true difference; not 0.
        variance: the variance of one document's difference.
        alpha: the significance level of the two-sided test.
        power: the wanted probability.
    """
    quantiles = normal_quantile(1 - alpha / 2) + normal_quantile(power)
    return max(2, math.ceil(quantiles**2 * variance / difference**2))


def achieved_power(difference: float, stderr: float, alpha: float = 0.05) -> float:
    """Returns the probability that a two-sided test detects a true difference."""
    if stderr == 0:
        return 1.0 if difference else alpha
    bound = normal_quantile(1 - alpha / 2)
    shift = abs(difference) / stderr
    return _normal_cdf(shift - bound) + _normal_cdf(-shift - bound)


def _normal_cdf(value: float) -> float:
    return 0.5 * math.erfc(-value / math.sqrt(2))
