"""Which standard error belongs to which aggregation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lm_eval.metrics import aggregations, classification
from lm_eval.stats.bootstrap import bootstrap_stderr, replicate_means, replicates_within_reason
from lm_eval.stats.errors import mean_stderr

Array = np.ndarray[Any, np.dtype[np.float64]]


def _plain(items: Sequence[Any]) -> Array:
    return np.asarray(items, dtype=float).reshape(len(items), -1)


def _hits(items: Sequence[Any]) -> Array:
    """For classes 0 and 1: whether a document is a hit, has the class, is given the class."""
    gold, predicted = np.asarray(items, dtype=float).T
    return np.stack([gold * predicted, gold, predicted], axis=1)


def _f1(means: Array) -> Array:
    claimed = means[:, 1] + means[:, 2]
    return 2 * means[:, 0] / np.where(claimed > 0, claimed, 1)


def _mcc(means: Array) -> Array:
    hit, gold, predicted = means.T
    spread = gold * (1 - gold) * predicted * (1 - predicted)
    return np.where(spread > 0, (hit - gold * predicted) / np.sqrt(np.maximum(spread, 1e-300)), 0)


#: Aggregations that are a function of column means: how to make the columns, and what to make of
#: their means. All replicates are one array operation.
_OF_MEANS: dict[Callable[..., Any], tuple[Callable[..., Array], Callable[[Array], Array]]] = {
    aggregations.perplexity: (_plain, lambda m: np.exp(-m[:, 0])),
    aggregations.weighted_perplexity: (_plain, lambda m: np.exp(-m[:, 0] / m[:, 1])),
    aggregations.bits_per_byte: (_plain, lambda m: -m[:, 0] / m[:, 1] / math.log(2)),
    classification.f1_score: (_hits, _f1),
    classification.matthews_corrcoef: (_hits, _mcc),
}

#: Aggregations called once a replicate, for want of a faster way.
_ONE_BY_ONE = (aggregations.median, aggregations.nanmean, classification.matthews_corrcoef)
_ONE_BY_ONE_REPLICATES = 1_000


def standard_error(
    aggregation: Callable[..., Any], items: Sequence[Any], bootstrap_iters: int
) -> float | None:
    """The standard error of `aggregation(items)`, or None where there is none to be had."""
    if bootstrap_iters <= 0 or len(items) < 2:
        return None
    if aggregation is aggregations.mean:
        return mean_stderr(items)
    columns, value = _OF_MEANS.get(aggregation, (None, None))
    if columns is not None and value is not None and (columns is not _hits or _binary(items)):
        replicates = replicates_within_reason(bootstrap_iters, len(items))
        with np.errstate(over="ignore", invalid="ignore"):
            return float(np.std(value(replicate_means(columns(items), replicates)), ddof=1))
    if aggregation in _ONE_BY_ONE:
        return bootstrap_stderr(aggregation, items, min(bootstrap_iters, _ONE_BY_ONE_REPLICATES))
    return None


def _binary(items: Sequence[Any]) -> bool:
    return all(gold in (0, 1) and predicted in (0, 1) for gold, predicted in items)
