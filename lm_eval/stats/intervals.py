"""Confidence intervals: Student's t for means, Wilson's for proportions, and normal ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from statistics import NormalDist

Interval = tuple[float, float]


def normal_quantile(probability: float) -> float:
    """Returns the quantile of the standard normal distribution at `probability`.

    Raises `statistics.StatisticsError` if `probability` is not between 0 and 1, both excluded.
    """
    return NormalDist().inv_cdf(probability)


@cache
def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Returns the quantile of Student's t distribution at `probability`, found by bisection.

    `probability` is between 0 and 1, both excluded.
    """
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees_of_freedom)
    low, high = 0.0, 2.0
    while _t_cdf(high, degrees_of_freedom) < probability:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (
            (middle, high) if _t_cdf(middle, degrees_of_freedom) < probability else (low, middle)
        )
    return (low + high) / 2


def t_interval(
    value: float, stderr: float, degrees_of_freedom: float, confidence: float
) -> Interval:
    """Returns the confidence interval `(low, high)` of a mean, by Student's t distribution.

    Args:
        value: the mean.
        stderr: its standard error.
        degrees_of_freedom: the number of documents (or clusters) minus one.
        confidence: the confidence level, such as 0.95.
    """
    margin = t_quantile((1 + confidence) / 2, degrees_of_freedom) * stderr
    return value - margin, value + margin


def normal_interval(value: float, stderr: float, confidence: float) -> Interval:
    """Returns the confidence interval `(low, high)` of `value`, by the normal distribution.

    `confidence` is the confidence level, such as 0.95.
    """
    margin = normal_quantile((1 + confidence) / 2) * stderr
    return value - margin, value + margin


def combined_interval(
    weights: Sequence[float], values: Sequence[float], intervals: Sequence[Interval]
) -> Interval:
    """Returns the confidence interval of a weighted sum of independent estimates.

    It is computed from their own intervals, of the same level: the distances to their ends are
    weighted and added as squares (MOVER, Zou and Donner 2008). For the difference of two
    proportions with Wilson's intervals it is Newcombe's interval; for normal intervals it is the
    normal one.

    Args:
        weights: the weight of each estimate; `(1, -1)` for a difference.
        values: the estimates.
        intervals: their confidence intervals.
    """
    total = sum(weight * value for weight, value in zip(weights, values, strict=True))
    below, above = [], []
    for weight, value, (low, high) in zip(weights, values, intervals, strict=True):
        distances = weight * (value - low), weight * (high - value)
        below.append(distances[0] if weight >= 0 else distances[1])
        above.append(distances[1] if weight >= 0 else distances[0])
    return total - math.hypot(*below), total + math.hypot(*above)


def wilson_interval(proportion: float, count: float, confidence: float) -> Interval:
    """Returns Wilson's confidence interval `(low, high)` of a proportion.

    The interval stays within 0 and 1, and has a positive width even if `proportion` is 0 or 1.

    Args:
        proportion: the observed proportion of successes.
        count: the number of trials. It may be an effective number that is not an integer, if
            documents are clustered.
        confidence: the confidence level, such as 0.95.
    """
    z2 = normal_quantile((1 + confidence) / 2) ** 2
    center = (proportion + z2 / (2 * count)) / (1 + z2 / count)
    spread = proportion * (1 - proportion) / count + z2 / (4 * count**2)
    margin = math.sqrt(z2 * max(spread, 0.0)) / (1 + z2 / count)
    return max(0.0, center - margin), min(1.0, center + margin)


def _t_cdf(t: float, degrees_of_freedom: float) -> float:
    """Returns the cumulative distribution function of Student's t at a positive `t`."""
    return 1 - 0.5 * regularized_beta(
        degrees_of_freedom / (degrees_of_freedom + t * t), degrees_of_freedom / 2, 0.5
    )


def regularized_beta(x: float, a: float, b: float) -> float:
    """Returns the regularized incomplete beta function I_x(a, b)."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - regularized_beta(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _beta_continued_fraction(x, a, b)


def _beta_continued_fraction(x: float, a: float, b: float) -> float:
    """Returns the continued fraction of the incomplete beta function, by Lentz's algorithm."""
    tiny = 1e-300
    c, d = 1.0, 1.0 / ((1.0 - (a + b) * x / (a + 1)) or tiny)
    value = d
    for m in range(1, 10_000):
        for step in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 / ((1.0 + step * d) or tiny)
            c = (1.0 + step / c) or tiny
            value *= c * d
        if abs(c * d - 1.0) < 1e-15:
            break
    return value
