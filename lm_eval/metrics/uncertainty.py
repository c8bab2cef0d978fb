"""Which standard error, and which interval, belongs to which aggregation.

A mean has its error in closed form. Everything else the published harness resamples, or leaves
without an error; here every score that is a function of sums over documents is resampled as one
matrix product. Documents that come in clusters are taken cluster by cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from lm_eval.api.registry import is_resampled
from lm_eval.metrics import aggregations, classification, translation
from lm_eval.stats.bootstrap import (
    OfSums,
    bootstrap_median,
    bootstrap_of_sums,
    bootstrap_stderr,
)
from lm_eval.stats.errors import clustered_stderr, codes_of, mean_stderr
from lm_eval.stats.intervals import Interval, normal_interval, t_interval, wilson_interval

Array = np.ndarray[Any, np.dtype[np.float64]]
Aggregation = Callable[..., Any]
Clusters = Sequence[Hashable]

#: Aggregations that are the mean of a number a document, and how to get at that number.
_MEANS: dict[Aggregation, Callable[[Sequence[Any]], Sequence[float]]] = {
    aggregations.mean: lambda items: items,
    aggregations.brier_score: aggregations.brier_scores,
    aggregations.likelihood: aggregations.gold_probabilities,
}


def _with_count(items: Sequence[Any]) -> Array:
    values = np.asarray(items, dtype=float).reshape(len(items), -1)
    return np.column_stack([values, np.ones(len(items))])


def _numbers(items: Sequence[Any]) -> Array:
    """Values that are numbers, 0 for the others, and whether each is one."""
    values = np.asarray(items, dtype=float)
    known = ~np.isnan(values)
    return np.column_stack([np.where(known, values, 0.0), known])


def _cells(items: Sequence[Any]) -> Array:
    """Which cell of the table of gold and predicted classes each document is in."""
    cell, size = classification.cells(items)
    columns = np.zeros((len(items), size * size))
    columns[np.arange(len(items)), cell] = 1.0
    return columns


def _hits(items: Sequence[Any]) -> Array:
    """For classes 0 and 1: whether a document is a hit, has the class, is given the class."""
    gold, predicted = np.asarray(items, dtype=float).T
    return np.column_stack([gold * predicted, gold, predicted])


def _tables(sums: Array) -> Array:
    size = math.isqrt(sums.shape[1])
    return sums.reshape(-1, size, size)


#: Aggregations that are a function of sums over documents: the columns to sum, and the function.
_OF_SUMS: dict[Aggregation, tuple[Callable[[Sequence[Any]], Array], OfSums]] = {
    aggregations.perplexity: (_with_count, lambda s: np.exp(-s[:, 0] / s[:, 1])),
    aggregations.weighted_perplexity: (_with_count, lambda s: np.exp(-s[:, 0] / s[:, 1])),
    aggregations.bits_per_byte: (_with_count, lambda s: -s[:, 0] / s[:, 1] / math.log(2)),
    aggregations.nanmean: (_numbers, lambda s: s[:, 0] / s[:, 1]),
    classification.f1_score: (_hits, classification.f1_of_sums),
    classification.matthews_corrcoef: (_cells, lambda s: classification.mcc_of_tables(_tables(s))),
    classification.weighted_f1_score: (
        _cells,
        lambda s: classification.weighted_f1_of_tables(_tables(s)),
    ),
    **{
        aggregation: (metric.columns, metric.of_sums)
        for aggregation, metric in translation.CORPUS_METRICS.items()
    },
}

#: Tables of more labels than these grow larger than what they save.
_OF_TABLES = (classification.matthews_corrcoef, classification.weighted_f1_score)
_MAX_LABELS = 50

#: As published: replicates of a translation metric, and of what is called once a replicate.
_TRANSLATION_REPLICATES = 100
_ONE_BY_ONE_REPLICATES = 1_000


def standard_error(
    aggregation: Aggregation,
    items: Sequence[Any],
    bootstrap_iters: int,
    clusters: Clusters | None = None,
) -> float | None:
    """The standard error of `aggregation(items)`, or None where there is none to be had.

    `clusters` says, item by item, what it shares with others that err together.
    """
    if bootstrap_iters <= 0 or len(items) < 2:
        return None
    if aggregation in _MEANS:
        values = _MEANS[aggregation](items)
        return mean_stderr(values) if clusters is None else clustered_stderr(values, clusters)
    if aggregation is aggregations.acc_all:
        questions = aggregations.all_right(items)
        return mean_stderr(questions) if len(questions) > 1 else None
    if aggregation in translation.CORPUS_METRICS:
        bootstrap_iters = min(bootstrap_iters, _TRANSLATION_REPLICATES)
    if aggregation in _OF_TABLES and classification.cells(items)[1] > _MAX_LABELS:
        return _one_by_one(aggregation, items, bootstrap_iters, clusters)
    if aggregation in _OF_SUMS:
        columns, of_sums = _OF_SUMS[aggregation]
        summed = columns(items) if clusters is None else _by_cluster(columns(items), clusters)
        return bootstrap_of_sums(summed, of_sums, bootstrap_iters) if len(summed) > 1 else math.nan
    if aggregation is aggregations.median and clusters is None:
        return bootstrap_median(items, bootstrap_iters)
    if aggregation is aggregations.median or is_resampled(aggregation):
        return _one_by_one(aggregation, items, bootstrap_iters, clusters)
    return None


def _by_cluster(columns: Array, clusters: Clusters) -> Array:
    codes = codes_of(clusters)
    return np.stack([np.bincount(codes, weights=column) for column in columns.T], axis=1)


def _one_by_one(
    aggregation: Aggregation,
    items: Sequence[Any],
    bootstrap_iters: int,
    clusters: Clusters | None,
) -> float:
    """Resample documents, or whole clusters of them, and aggregate each resample."""
    replicates = min(bootstrap_iters, _ONE_BY_ONE_REPLICATES)
    if clusters is None:
        return bootstrap_stderr(aggregation, items, replicates)
    groups: dict[int, list[Any]] = {}
    for code, item in zip(codes_of(clusters).tolist(), items, strict=True):
        groups.setdefault(code, []).append(item)
    if len(groups) < 2:
        return math.nan
    return bootstrap_stderr(
        lambda drawn: aggregation(list(chain.from_iterable(drawn))),
        list(groups.values()),
        replicates,
    )


def confidence_interval(
    aggregation: Aggregation,
    items: Sequence[Any],
    value: float,
    stderr: float | None,
    confidence: float,
    clusters: Clusters | None = None,
) -> Interval | None:
    """Where the true score lies with this confidence: Wilson's for shares, t for other means,
    and the normal distribution's for what is resampled.
    """
    if stderr is None or math.isnan(stderr):
        return None
    if aggregation not in _MEANS:
        return normal_interval(value, stderr, confidence)
    values = np.asarray(_MEANS[aggregation](items), dtype=float)
    units = len(values) if clusters is None else len(set(clusters))
    if not np.isin(values, (0.0, 1.0)).all():
        return t_interval(value, stderr, units - 1, confidence)
    # Clustered documents are worth as many independent ones as would have this error.
    worth = value * (1 - value) / stderr**2 if clusters is not None and stderr > 0 else units
    return wilson_interval(value, worth, confidence)
