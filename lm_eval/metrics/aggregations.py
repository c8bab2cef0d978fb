"""From per-document values to one number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.registry import register_aggregation


@register_aggregation("bypass")
def bypass_agg(arr: Sequence[Any]) -> int:
    """The placeholder of runs that only predict."""
    return 999


@register_aggregation("mean")
def mean(arr: Sequence[float]) -> float:
    return sum(arr) / len(arr)


@register_aggregation("nanmean")
def nanmean(arr: Sequence[float]) -> float:
    """The mean of the values that are numbers; nan where there are none."""
    values = np.asarray(arr, dtype=float)
    return float(np.nanmean(values)) if np.any(~np.isnan(values)) else math.nan


@register_aggregation("median")
def median(arr: Sequence[float]) -> float:
    """The middle value; of an even number, the upper of the two, as published."""
    return sorted(arr)[len(arr) // 2]


def weighted_mean(items: Sequence[tuple[float, float]]) -> float:
    """Sum of values over sum of weights."""
    values, weights = zip(*items, strict=True)
    return float(sum(values) / sum(weights))


@register_aggregation("perplexity")
def perplexity(items: Sequence[float]) -> float:
    return _exp(-mean(items))


@register_aggregation("weighted_perplexity")
def weighted_perplexity(items: Sequence[tuple[float, float]]) -> float:
    return _exp(-weighted_mean(items))


@register_aggregation("bits_per_byte")
def bits_per_byte(items: Sequence[tuple[float, float]]) -> float:
    return -weighted_mean(items) / math.log(2)


def _exp(value: float) -> float:
    """Infinity where the number is too large to hold: a bad model is no reason to crash."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
