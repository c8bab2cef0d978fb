"""F1 and Matthews' correlation from `(gold, predicted)` pairs, in plain numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.api.registry import register_aggregation
from lm_eval.errors import DataError

Pairs = Sequence[tuple[Any, Any]]


def confusion(items: Pairs) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Counts by `[gold, predicted]`, over the labels that occur, in order."""
    golds, predictions = (np.asarray(column) for column in zip(*items, strict=True))
    _, codes = np.unique(np.concatenate([golds, predictions]), return_inverse=True)
    size = int(codes.max()) + 1
    counts = np.bincount(codes[: len(golds)] * size + codes[len(golds) :], minlength=size * size)
    return counts.reshape(size, size)


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


def weighted_f1_score(items: Pairs) -> float:
    """F1 of every class, each weighted by how often it is the gold answer."""
    counts = confusion(items)
    support, claimed = counts.sum(axis=1), counts.sum(axis=1) + counts.sum(axis=0)
    scores = 2 * np.diag(counts) / np.maximum(claimed, 1)
    return float((scores * support).sum() / support.sum())


@register_aggregation("matthews_corrcoef")
def matthews_corrcoef(items: Pairs) -> float:
    """Correlation between gold and predicted classes; 0 where either never varies."""
    counts = confusion(items).astype(float)
    gold, predicted, total = counts.sum(axis=1), counts.sum(axis=0), counts.sum()
    covariance = np.trace(counts) * total - gold @ predicted
    spread = (total**2 - predicted @ predicted) * (total**2 - gold @ gold)
    return float(covariance / np.sqrt(spread)) if spread > 0 else 0.0
