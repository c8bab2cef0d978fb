"""Several answers to one question: chances of success, and what repeats do to the variance."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np


def pass_at_k(count: int, right: int, k: int) -> float:
    """The chance that at least one of k answers, drawn from `count` with `right` good, is good."""
    _check(count, right, k)
    return 1.0 - comb(count - right, k) / comb(count, k)


def pass_hat_k(count: int, right: int, k: int) -> float:
    """The chance that all of k answers, drawn from `count` with `right` good, are good."""
    _check(count, right, k)
    return comb(right, k) / comb(count, k)


def _check(count: int, right: int, k: int) -> None:
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}, but there are {count} answers to draw from")
    if not 0 <= right <= count:
        raise ValueError(f"{right} right answers of {count}")


def variance_components(scores: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Variance between documents, and between the answers to one document, unbiased.

    `scores` has a row a document, all of K answers. The mean over everything then has the
    variance (between + within / K) / n, which is what the standard error over documents' means
    estimates as it stands.
    """
    table = np.asarray(scores, dtype=float)
    within = float(table.var(axis=1, ddof=1).mean()) if table.shape[1] > 1 else 0.0
    between = float(table.mean(axis=1).var(ddof=1)) - within / table.shape[1]
    return between, within
