"""Classification metrics in plain numpy: F1, weighted F1 and Matthews' correlation coefficient.

The aggregations take one `(gold, predicted)` pair of labels per document. The functions ending in
`_of_sums` and `_of_tables` compute the same scores for many bootstrap replicates at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.registry import register_aggregation
from lm_eval.errors import DataError

Pairs = Sequence[tuple[Any, Any]]
Array = np.ndarray[Any, np.dtype[np.float64]]


def confusion_cells(items: Pairs) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Returns the confusion matrix cell of each pair (gold, predicted), and the number of labels.

    With `size` labels, sorted, a cell has the number `gold_index * size + predicted_index`.
    Only labels that occur in `items` are counted.
    """
    golds, predictions = (np.asarray(column) for column in zip(*items, strict=True))
    _, codes = np.unique(np.concatenate([golds, predictions]), return_inverse=True)
    size = int(codes.max()) + 1
    return codes[: len(golds)] * size + codes[len(golds) :], size


def confusion_matrix(items: Pairs) -> Array:
    """Returns the confusion matrix `[gold, predicted]` of pairs (gold label, predicted label).

    It has one row and one column per label that occurs, in sorted order.
    """
    codes, size = confusion_cells(items)
    return np.bincount(codes, minlength=size * size).reshape(size, size).astype(float)


@register_aggregation("f1")
def f1_score(items: Pairs) -> float:
    """Returns the F1 score of class 1, given pairs (gold, predicted) of the labels 0 and 1.

    Returns 0.0 if class 1 neither occurs nor is predicted. Raises `DataError` for other labels.
    """
    golds, predictions = (np.asarray(column) for column in zip(*items, strict=True))
    if not np.isin(golds, (0, 1)).all() or not np.isin(predictions, (0, 1)).all():
        raise DataError(
            "the metric f1 needs the labels 0 and 1. For other labels, set the aggregation to "
            "weighted_f1_score: import it from lm_eval.utils in a Python file of the task folder, "
            "and name it with !function."
        )
    hits = int(np.sum((golds == 1) & (predictions == 1)))
    total = int(np.sum(golds == 1)) + int(np.sum(predictions == 1))
    return 2 * hits / total if total else 0.0


def f1_of_sums(sums: Array) -> Array:
    """Returns the F1 scores of many replicates, from their counts of class 1.

    `sums` has one row per replicate, with the number of true positives, of gold labels, and of
    predictions. The score is 0 if there are neither gold labels nor predictions.
    """
    total = sums[:, 1] + sums[:, 2]
    return 2 * sums[:, 0] / np.where(total > 0, total, 1)


def weighted_f1_score(items: Pairs) -> float:
    """Returns the mean F1 score of all classes, weighted by how often each is the gold label.

    `items` are pairs (gold label, predicted label).
    """
    return float(weighted_f1_of_tables(confusion_matrix(items)[None])[0])


def weighted_f1_of_tables(tables: Array) -> Array:
    """Returns the weighted F1 scores `[B]` of many confusion matrices `[B, gold, predicted]`.

    A score is the mean of the F1 scores of all classes, weighted by how often each is the gold
    label. A class that is never predicted correctly has the F1 score 0.
    """
    support, predicted = tables.sum(axis=2), tables.sum(axis=1)
    scores = 2 * np.diagonal(tables, axis1=1, axis2=2) / np.maximum(support + predicted, 1)
    weighted: Array = (scores * support).sum(axis=1) / support.sum(axis=1)
    return weighted


@register_aggregation("matthews_corrcoef")
def matthews_corrcoef(items: Pairs) -> float:
    """Returns Matthews' correlation coefficient of pairs (gold label, predicted label).

    Returns 0.0 if all gold labels, or all predictions, are the same.
    """
    return float(mcc_of_tables(confusion_matrix(items)[None])[0])


def mcc_of_tables(tables: Array) -> Array:
    """Returns Matthews' coefficients `[B]` of many confusion matrices `[B, gold, predicted]`.

    A coefficient is 0 if all gold labels, or all predictions, are the same.
    """
    gold, predicted, total = tables.sum(axis=2), tables.sum(axis=1), tables.sum(axis=(1, 2))
    right = np.trace(tables, axis1=1, axis2=2)
    covariance = right * total - (gold * predicted).sum(axis=1)
    spread = (total**2 - (predicted**2).sum(axis=1)) * (total**2 - (gold**2).sum(axis=1))
    return np.where(spread > 0, covariance / np.sqrt(np.where(spread > 0, spread, 1)), 0.0)
