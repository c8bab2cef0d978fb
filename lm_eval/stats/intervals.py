"""Confidence intervals: Student's t for means, Wilson's for shares."""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist

Interval = tuple[float, float]


def normal_quantile(probability: float) -> float:
    """Where the standard normal distribution has `probability` below it."""
    return NormalDist().inv_cdf(probability)


@cache
def t_quantile(probability: float, freedom: float) -> float:
    """Where Student's t distribution has `probability` below it, by bisection."""
    if probability == 0.5:
        return 0.0
    if probability < 0.5:
        return -t_quantile(1 - probability, freedom)
    low, high = 0.0, 2.0
    while _t_below(high, freedom) < probability:
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (middle, high) if _t_below(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def t_interval(value: float, stderr: float, freedom: float, confidence: float) -> Interval:
    """A mean give or take what t allows; `freedom` is the documents (or clusters) less one."""
    reach = t_quantile((1 + confidence) / 2, freedom) * stderr
    return value - reach, value + reach


def normal_interval(value: float, stderr: float, confidence: float) -> Interval:
    """A value give or take what the normal distribution allows."""
    reach = normal_quantile((1 + confidence) / 2) * stderr
    return value - reach, value + reach


def wilson_interval(share: float, count: float, confidence: float) -> Interval:
    """A share of `count` trials; never beyond 0 and 1, and of a width even at 0 and 1.

    `count` may be an effective number: fewer than there are documents, where these are clustered.
    """
    z2 = normal_quantile((1 + confidence) / 2) ** 2
    centre = (share + z2 / (2 * count)) / (1 + z2 / count)
    spread = share * (1 - share) / count + z2 / (4 * count**2)
    reach = math.sqrt(z2 * max(spread, 0.0)) / (1 + z2 / count)
    return max(0.0, centre - reach), min(1.0, centre + reach)


def _t_below(t: float, freedom: float) -> float:
    """The share of Student's t distribution below a positive `t`."""
    return 1 - 0.5 * _beta_share(freedom / (freedom + t * t), freedom / 2, 0.5)


def _beta_share(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _beta_share(1 - x, b, a)
    scale = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front = math.exp(scale + a * math.log(x) + b * math.log1p(-x)) / a
    return front * _fraction(x, a, b)


def _fraction(x: float, a: float, b: float) -> float:
    """Its continued fraction, evaluated from the front (Lentz)."""
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
