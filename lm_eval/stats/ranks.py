"""Rank correlation: how far two settings agree on the order of models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Returns Kendall's τ-b of two lists of scores: 1 for the same order, -1 for the reverse one.

    Ties count as neither. Returns nan for fewer than two values, or if all values of a list are
    equal.

    Args:
        first: the score of each model under one setting.
        second: their scores under another one, in the same order.
    """
    agreement, pairs_first, pairs_second = 0, 0, 0
    for (a, b), (x, y) in zip(combinations(first, 2), combinations(second, 2), strict=True):
        one, two = (a > b) - (a < b), (x > y) - (x < y)
        agreement += one * two
        pairs_first += one != 0
        pairs_second += two != 0
    if not pairs_first or not pairs_second:
        return math.nan
    return agreement / math.sqrt(pairs_first * pairs_second)


def ranks(scores: Sequence[float], higher_is_better: bool = True) -> list[int]:
    """Returns the rank of each score, 1 for the best; equal scores share the better rank."""
    signed = [score if higher_is_better else -score for score in scores]
    return [1 + sum(other > score for other in signed) for score in signed]
