"""Statistics of repeated answers to the same document: pass@k, pass^k and variance components."""

from __future__ import annotations

from collections.abc import Sequence
from math import comb

import numpy as np


def pass_at_k(count: int, correct: int, k: int) -> float:
    """Returns the unbiased estimate of pass@k: the probability that any of `k` answers is correct.

    The `k` answers are drawn without replacement from `count` answers, of which `correct` are
    correct. Raises `ValueError` if `k` is not between 1 and `count`, or `correct` not between 0 and
    `count`.
    """
    _check(count, correct, k)
    return 1.0 - comb(count - correct, k) / comb(count, k)


def pass_hat_k(count: int, correct: int, k: int) -> float:
    """Returns the unbiased estimate of pass^k: the probability that all of `k` answers are correct.

    The `k` answers are drawn without replacement from `count` answers, of which `correct` are
    correct. Raises `ValueError` if `k` is not between 1 and `count`, or `correct` not between 0 and
    `count`.
    """
    _check(count, correct, k)
    return comb(correct, k) / comb(count, k)


def _check(count: int, correct: int, k: int) -> None:
    if not 1 <= k <= count:
        raise ValueError(f"k is {k}, but must be between 1 and the number of answers, {count}")
    if not 0 <= correct <= count:
        raise ValueError(
            f"the number of correct answers is {correct}, but must be between 0 and the number of "
            f"answers, {count}"
        )


def variance_components(scores: Sequence[Sequence[float]]) -> tuple[float, float]:
    """Returns unbiased estimates `(between, within)` of the variance of scores.

    `between` is the variance between documents; the estimate may be negative. `within` is the
    variance between repeated answers to the same document (0.0 if there are no repeats). `scores`
    has one row for each of n documents, each with the scores of K answers. The variance of the
    overall mean is (between + within / K) / n. The standard error of the documents' means estimates
    its square root, so the variation between repeats needs no correction.
    """
    table = np.asarray(scores, dtype=float)
    within = float(table.var(axis=1, ddof=1).mean()) if table.shape[1] > 1 else 0.0
    between = float(table.mean(axis=1).var(ddof=1)) - within / table.shape[1]
    return between, within
