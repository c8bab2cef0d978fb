"""Statistics of repeated answers to the same document: pass@k, pass^k, maj@k, variances."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import comb
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


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


def majority_at_k(votes: Sequence[Hashable | None], values: Sequence[float], k: int) -> float:
    """Returns the expected value of the most frequent answer among `k` answers.

    The `k` answers are drawn without replacement from all answers, and the result is the exact mean
    over all ways to draw them. If several answers are equally frequent, their values count in equal
    parts. Raises `ValueError` if `k` is not between 1 and the number of answers.

    Args:
        votes: what each answer votes for; None for one that does not vote. If none of the `k`
            answers votes, the mean value of answers without a vote counts.
        values: the score of each answer, in the same order. Answers with the same vote should have
            the same score; otherwise their mean counts.
        k: how many answers vote.
    """
    count = len(votes)
    _check(count, 0, k)
    groups: dict[Hashable, list[float]] = {}
    for vote, value in zip(votes, values, strict=True):
        groups.setdefault(vote, []).append(float(value))
    silent = groups.pop(None, [])
    sizes = [len(group) for group in groups.values()]
    means = [sum(group) / len(group) for group in groups.values()]
    if k == count:
        best = max(sizes, default=0)
        winners = [mean for mean, size in zip(means, sizes, strict=True) if size == best]
        return sum(winners) / len(winners) if winners else sum(silent) / len(silent)
    # The numbers of answers drawn from each group are independent binomial variables, given that
    # they sum to k.
    share = k / count
    total = _binomial(count, share)[k]
    expected = 0.0
    if k <= len(silent):
        none_votes = comb(len(silent), k) / comb(count, k)
        expected = none_votes * sum(silent) / len(silent)
    for most in range(1, min(k, max(sizes, default=0)) + 1):
        expected += _value_if_most(sizes, means, len(silent), share, most, k) / total
    return float(expected)


def _value_if_most(
    sizes: Sequence[int], means: Sequence[float], silent: int, share: float, most: int, k: int
) -> float:
    """Returns the part of the expected value in which the winner got exactly `most` votes.

    It is not yet divided by the probability that `k` answers are drawn. `sizes` and `means` are the
    number and the mean score of the answers in each group, `silent` the number of answers without
    a vote, and `share` the probability with which an answer is drawn.
    """
    # By number of answers drawn and number of groups with `most` votes: the probability, and the
    # probability times the sum of these groups' scores.
    ties = k // most
    weight, score = np.zeros((k + 1, ties + 1)), np.zeros((k + 1, ties + 1))
    weight[0, 0] = 1.0
    for size, mean in zip(sizes, means, strict=True):
        chances = _binomial(size, share)
        next_weight, next_score = np.zeros_like(weight), np.zeros_like(score)
        for drawn in range(min(size, most - 1, k) + 1):
            next_weight[drawn:] += chances[drawn] * weight[: k + 1 - drawn]
            next_score[drawn:] += chances[drawn] * score[: k + 1 - drawn]
        if size >= most:
            before, scored = weight[: k + 1 - most, :-1], score[: k + 1 - most, :-1]
            next_weight[most:, 1:] += chances[most] * before
            next_score[most:, 1:] += chances[most] * (scored + mean * before)
        weight, score = next_weight, next_score
    means_of_winners = score[:, 1:] / np.arange(1, ties + 1)
    chances = _binomial(silent, share)
    return float(sum(chances[n] * means_of_winners[k - n].sum() for n in range(min(silent, k) + 1)))


def _binomial(count: int, share: float) -> Array:
    """Returns the probabilities of 0, 1 … `count` successes, each with the probability `share`."""
    chances = np.array([1.0])
    for _ in range(count):
        chances = np.convolve(chances, (1.0 - share, share))
    return chances


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
