"""Which standard error belongs to which aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lm_eval.metrics import aggregations
from lm_eval.stats.bootstrap import bootstrap_stderr, replicate_means, replicates_within_reason
from lm_eval.stats.errors import mean_stderr

Means = np.ndarray[Any, np.dtype[np.float64]]

#: Aggregations that are a function of column means: all replicates in one array operation.
_OF_MEANS: dict[Callable[..., Any], Callable[[Means], Means]] = {
    aggregations.perplexity: lambda means: np.exp(-means[:, 0]),
    aggregations.weighted_perplexity: lambda means: np.exp(-means[:, 0] / means[:, 1]),
    aggregations.bits_per_byte: lambda means: -means[:, 0] / means[:, 1] / math.log(2),
}

#: Aggregations cheap enough to be called once a replicate.
_ONE_BY_ONE = (aggregations.median, aggregations.nanmean)
_ONE_BY_ONE_REPLICATES = 1_000


def standard_error(
    aggregation: Callable[..., Any], items: Sequence[Any], bootstrap_iters: int
) -> float | None:
    """The standard error of `aggregation(items)`, or None where there is none to be had."""
    if bootstrap_iters <= 0 or len(items) < 2:
        return None
    if aggregation is aggregations.mean:
        return mean_stderr(items)
    if aggregation in _OF_MEANS:
        columns = np.asarray(items, dtype=float).reshape(len(items), -1)
        replicates = replicates_within_reason(bootstrap_iters, len(items))
        with np.errstate(over="ignore", invalid="ignore"):
            values = _OF_MEANS[aggregation](replicate_means(columns, replicates))
            return float(np.std(values, ddof=1))
    if aggregation in _ONE_BY_ONE:
        return bootstrap_stderr(aggregation, items, min(bootstrap_iters, _ONE_BY_ONE_REPLICATES))
    return None
