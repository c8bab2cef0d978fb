"""Chooses the standard error and the confidence interval of each aggregation.

The standard error of a mean has a closed form. For other scores, the published harness uses the
bootstrap, or reports no error. Here, every score that depends only on sums over documents is
bootstrapped by one matrix product. If documents come in clusters, whole clusters are resampled.
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
    ScoreFromSums,
    bootstrap_from_sums,
    bootstrap_median,
    bootstrap_stderr,
    bootstrap_values,
    draw_replicates,
)
from lm_eval.stats.errors import cluster_codes, clustered_stderr, mean_stderr
from lm_eval.stats.intervals import Interval, normal_interval, t_interval, wilson_interval

Array = np.ndarray[Any, np.dtype[np.float64]]
Aggregation = Callable[..., Any]
Clusters = Sequence[Hashable]

#: Aggregations that are the mean of one number per document, with the function that returns these
#: numbers.
_MEAN_AGGREGATIONS: dict[Aggregation, Callable[[Sequence[Any]], Sequence[float]]] = {
    aggregations.mean: lambda items: items,
    aggregations.brier_score: aggregations.brier_scores,
    aggregations.likelihood: aggregations.gold_probabilities,
}


def _with_count(items: Sequence[Any]) -> Array:
    """Returns the values of each document and a column of ones, whose sum counts documents.

    `(value, weight)` items keep both columns, before the ones.
    """
    values = np.asarray(items, dtype=float).reshape(len(items), -1)
    return np.column_stack([values, np.ones(len(items))])


def _valid_values(items: Sequence[Any]) -> Array:
    """Returns two columns: the values, with 0 in place of nan, and whether each is not nan."""
    values = np.asarray(items, dtype=float)
    known = ~np.isnan(values)
    return np.column_stack([np.where(known, values, 0.0), known])


def _one_hot_cells(items: Sequence[Any]) -> Array:
    """Returns a one-hot row per document, which marks its cell of the confusion matrix."""
    cell, size = classification.confusion_cells(items)
    columns = np.zeros((len(items), size * size))
    columns[np.arange(len(items)), cell] = 1.0
    return columns


def _binary_counts(items: Sequence[Any]) -> Array:
    """Returns three columns per document with labels 0 and 1.

    They are 1 if the document is a true positive, if its gold label is 1, and if 1 is predicted.
    """
    gold, predicted = np.asarray(items, dtype=float).T
    return np.column_stack([gold * predicted, gold, predicted])


def _confusion_matrices(sums: Array) -> Array:
    """Returns summed one-hot rows as confusion matrices `[B, gold, predicted]`."""
    size = math.isqrt(sums.shape[1])
    return sums.reshape(-1, size, size)


#: Aggregations that depend only on sums over documents: the function that returns the columns to
#: sum, and the function that computes scores from the sums.
_SUM_AGGREGATIONS: dict[Aggregation, tuple[Callable[[Sequence[Any]], Array], ScoreFromSums]] = {
    aggregations.perplexity: (_with_count, lambda s: np.exp(-s[:, 0] / s[:, 1])),
    aggregations.weighted_perplexity: (_with_count, lambda s: np.exp(-s[:, 0] / s[:, 1])),
    aggregations.bits_per_byte: (_with_count, lambda s: -s[:, 0] / s[:, 1] / math.log(2)),
    aggregations.nanmean: (_valid_values, lambda s: s[:, 0] / s[:, 1]),
    classification.f1_score: (_binary_counts, classification.f1_of_sums),
    classification.matthews_corrcoef: (
        _one_hot_cells,
        lambda s: classification.mcc_of_tables(_confusion_matrices(s)),
    ),
    classification.weighted_f1_score: (
        _one_hot_cells,
        lambda s: classification.weighted_f1_of_tables(_confusion_matrices(s)),
    ),
    **{
        aggregation: (metric.columns, metric.score_from_sums)
        for aggregation, metric in translation.CORPUS_METRICS.items()
    },
}

#: Aggregations of confusion matrices. With more than `_MAX_LABELS` labels, the matrices are so
#: large that calling the aggregation on each replicate is cheaper.
_CONFUSION_AGGREGATIONS = (classification.matthews_corrcoef, classification.weighted_f1_score)
_MAX_LABELS = 50

#: The most replicates of a translation metric, and of an aggregation that is called once per
#: replicate. The published harness has the same limits.
_TRANSLATION_REPLICATES = 100
_CALLED_REPLICATES = 1_000


def standard_error(
    aggregation: Aggregation,
    items: Sequence[Any],
    bootstrap_iters: int,
    clusters: Clusters | None = None,
) -> float | None:
    """Returns the standard error of `aggregation(items)`.

    Means have a closed form, and so has `acc_all`, which counts questions and ignores `clusters`.
    All others are bootstrapped.

    Returns None if `bootstrap_iters` is 0 or less, if there are fewer than two items (or, for
    `acc_all`, questions), or if no method is known for the aggregation. Returns nan if there are
    fewer than two clusters.

    Args:
        aggregation: the aggregation function.
        items: the value of each document.
        bootstrap_iters: the number of bootstrap replicates, for aggregations that need them. At
            most 100 are drawn for translation metrics, at most 1,000 for aggregations that must be
            called on each replicate, and fewer than requested for very many documents. 0 disables
            all standard errors.
        clusters: the cluster of each document, or None if documents are independent. Documents of
            the same cluster may have correlated scores.
    """
    if bootstrap_iters <= 0 or len(items) < 2:
        return None
    if aggregation in _MEAN_AGGREGATIONS:
        values = _MEAN_AGGREGATIONS[aggregation](items)
        return mean_stderr(values) if clusters is None else clustered_stderr(values, clusters)
    if aggregation is aggregations.acc_all:
        questions = aggregations.questions_all_correct(items)
        return mean_stderr(questions) if len(questions) > 1 else None
    if aggregation in translation.CORPUS_METRICS:
        bootstrap_iters = min(bootstrap_iters, _TRANSLATION_REPLICATES)
    if (
        aggregation in _CONFUSION_AGGREGATIONS
        and classification.confusion_cells(items)[1] > _MAX_LABELS
    ):
        return _bootstrap_by_calling(aggregation, items, bootstrap_iters, clusters)
    if aggregation in _SUM_AGGREGATIONS:
        columns, score_from_sums = _SUM_AGGREGATIONS[aggregation]
        summed = columns(items) if clusters is None else _sum_by_cluster(columns(items), clusters)
        return (
            bootstrap_from_sums(summed, score_from_sums, bootstrap_iters)
            if len(summed) > 1
            else math.nan
        )
    if aggregation is aggregations.median and clusters is None:
        return bootstrap_median(items, bootstrap_iters)
    if aggregation is aggregations.median or is_resampled(aggregation):
        return _bootstrap_by_calling(aggregation, items, bootstrap_iters, clusters)
    return None


def document_scores(aggregation: Aggregation, items: Sequence[Any]) -> Sequence[float] | None:
    """Returns one number per document whose mean is `aggregation(items)`; None if it is no mean."""
    numbers = _MEAN_AGGREGATIONS.get(aggregation)
    return None if numbers is None else numbers(items)


def replicate_scores(
    aggregation: Aggregation,
    items: Sequence[Any],
    replicates: int,
    clusters: Clusters | None = None,
) -> Array:
    """Returns the scores of bootstrap replicates: documents, or clusters, drawn with replacement.

    The draws depend only on the number of documents (or clusters) and of replicates, so that the
    replicates of two models on the same documents can be compared one by one.

    Args:
        aggregation: the aggregation function, not a mean.
        items: the value of each document.
        replicates: the number of replicates; at most 1,000 if the aggregation must be called on
            each.
        clusters: the cluster of each document; None if documents are independent.
    """
    if aggregation in _SUM_AGGREGATIONS:
        columns, score_from_sums = _SUM_AGGREGATIONS[aggregation]
        summed = columns(items) if clusters is None else _sum_by_cluster(columns(items), clusters)
        return bootstrap_values(summed, score_from_sums, replicates)
    codes = np.arange(len(items)) if clusters is None else cluster_codes(clusters)
    groups: dict[int, list[Any]] = {}
    for code, item in zip(codes.tolist(), items, strict=True):
        groups.setdefault(code, []).append(item)
    scores = []
    for block in draw_replicates(len(groups), min(replicates, _CALLED_REPLICATES)):
        for places in block.tolist():
            drawn = list(chain.from_iterable(groups[place] for place in places))
            scores.append(float(aggregation(drawn)))
    return np.array(scores)


def stderr_for_metric(
    metric: Aggregation, bootstrap_iters: int
) -> Callable[[Sequence[Any]], float] | None:
    """Returns the function that computes the standard error of an aggregation of documents.

    It takes the value of each document, as `standard_error` does, and returns nan if there are too
    few. Returns None if `bootstrap_iters` is 0 or less, or if no method is known for the
    aggregation.
    """
    if bootstrap_iters <= 0 or not _has_standard_error(metric):
        return None

    def stderr(items: Sequence[Any]) -> float:
        error = standard_error(metric, items, bootstrap_iters)
        return math.nan if error is None else error

    return stderr


def _has_standard_error(aggregation: Aggregation) -> bool:
    """Returns whether `standard_error` knows a method for an aggregation."""
    known = (aggregations.acc_all, aggregations.median)
    return (
        aggregation in _MEAN_AGGREGATIONS
        or aggregation in _SUM_AGGREGATIONS
        or aggregation in known
        or is_resampled(aggregation)
    )


def _sum_by_cluster(columns: Array, clusters: Clusters) -> Array:
    """Returns the sums of `columns` over the documents of each cluster, `[clusters, k]`."""
    codes = cluster_codes(clusters)
    return np.stack([np.bincount(codes, weights=column) for column in columns.T], axis=1)


def _bootstrap_by_calling(
    aggregation: Aggregation,
    items: Sequence[Any],
    bootstrap_iters: int,
    clusters: Clusters | None,
) -> float:
    """Returns the bootstrap standard error by calling `aggregation` on every replicate.

    At most 1,000 replicates are drawn. Documents are resampled or, if `clusters` is given, whole
    clusters. Returns nan if there are fewer than two clusters.
    """
    replicates = min(bootstrap_iters, _CALLED_REPLICATES)
    if clusters is None:
        return bootstrap_stderr(aggregation, items, replicates)
    groups: dict[int, list[Any]] = {}
    for code, item in zip(cluster_codes(clusters).tolist(), items, strict=True):
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
    """Returns the confidence interval `(low, high)` of a score, or None if `stderr` is None or nan.

    The aggregations `mean`, `brier_score` and `likelihood` get Wilson's interval if all values are
    0 or 1, and otherwise an interval of Student's t. All other aggregations get a normal interval.
    With clusters, Student's t counts clusters instead of documents. Wilson's interval then uses the
    number of independent documents that would have this standard error, or the number of clusters
    if `stderr` is 0.

    Args:
        aggregation: the aggregation function.
        items: the value of each document.
        value: the score, `aggregation(items)`.
        stderr: its standard error.
        confidence: the confidence level, such as 0.95.
        clusters: the cluster of each document, or None if documents are independent.
    """
    if stderr is None or math.isnan(stderr):
        return None
    if aggregation not in _MEAN_AGGREGATIONS:
        return normal_interval(value, stderr, confidence)
    values = np.asarray(_MEAN_AGGREGATIONS[aggregation](items), dtype=float)
    units = len(values) if clusters is None else len(set(clusters))
    if not np.isin(values, (0.0, 1.0)).all():
        return t_interval(value, stderr, units - 1, confidence)
    # The effective number of clustered documents is the number of independent documents that would
    # have the same standard error.
    effective_count = (
        value * (1 - value) / stderr**2 if clusters is not None and stderr > 0 else units
    )
    return wilson_interval(value, effective_count, confidence)
