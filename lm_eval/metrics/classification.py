"""F1 and Matthews' correlation from `(gold, predicted)` pairs, in plain numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.registry import register_aggregation
from lm_eval.errors import DataError

Pairs = Sequence[tuple[Any, Any]]
Array = np.ndarray[Any, np.dtype[np.float64]]


def cells(items: Pairs) -> tuple[np.ndarray[Any, np.dtype[np.int64]], int]:
    """Each pair as one number, gold · size + predicted, over the `size` labels that occur."""
    golds, predictions = (np.asarray(column) for column in zip(*items, strict=True))
    _, codes = np.unique(np.concatenate([golds, predictions]), return_inverse=True)
    size = int(codes.max()) + 1
    return codes[: len(golds)] * size + codes[len(golds) :], size


def confusion(items: Pairs) -> Array:
    """Counts by `[gold, predicted]`, over the labels that occur, in order."""
    codes, size = cells(items)
    return np.bincount(codes, minlength=size * size).reshape(size, size).astype(float)


@register_aggregation("f1")
def f1_score(items: Pairs) -> float:
    """F1 of the class 1 among 0 and 1; 0 where the class neither occurs nor is predicted."""
    golds, predictions = (np.asarray(column) for column in zip(*items, strict=True))
    if not np.isin(golds, (0, 1)).all() or not np.isin(predictions, (0, 1)).all():
        raise DataError(
            "f1 needs the classes 0 and 1; for more classes name weighted_f1_score as aggregation "
            "(!function, from lm_eval.utils)."
        )
    hits = int(np.sum((golds == 1) & (predictions == 1)))
    claimed = int(np.sum(golds == 1)) + int(np.sum(predictions == 1))
    return 2 * hits / claimed if claimed else 0.0


def f1_of_sums(sums: Array) -> Array:
    """F1 of many samples, from their hits, golds and predictions of the class."""
    claimed = sums[:, 1] + sums[:, 2]
    return 2 * sums[:, 0] / np.where(claimed > 0, claimed, 1)


def weighted_f1_score(items: Pairs) -> float:
    """F1 of every class, each weighted by how often it is the gold answer."""
    return float(weighted_f1_of_tables(confusion(items)[None])[0])


def weighted_f1_of_tables(tables: Array) -> Array:
    """The same of many tables `[B, gold, predicted]`."""
    support, predicted = tables.sum(axis=2), tables.sum(axis=1)
    scores = 2 * np.diagonal(tables, axis1=1, axis2=2) / np.maximum(support + predicted, 1)
    weighted: Array = (scores * support).sum(axis=1) / support.sum(axis=1)
    return weighted


@register_aggregation("matthews_corrcoef")
def matthews_corrcoef(items: Pairs) -> float:
    """Correlation between gold and predicted classes; 0 where either never varies."""
    return float(mcc_of_tables(confusion(items)[None])[0])


def mcc_of_tables(tables: Array) -> Array:
    """The same of many tables `[B, gold, predicted]`."""
    gold, predicted, total = tables.sum(axis=2), tables.sum(axis=1), tables.sum(axis=(1, 2))
    right = np.trace(tables, axis1=1, axis2=2)
    covariance = right * total - (gold * predicted).sum(axis=1)
    spread = (total**2 - (predicted**2).sum(axis=1)) * (total**2 - (gold**2).sum(axis=1))
    return np.where(spread > 0, covariance / np.sqrt(np.where(spread > 0, spread, 1)), 0.0)
