"""Aggregation for CommitmentBank: F1 averaged over its three classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.api.metrics import f1_score


def mean_f1(items: Sequence[tuple[Any, Any]]) -> float:
    """Returns the unweighted mean of the three classes' F1 over (gold, predicted) pairs."""
    by_class = [
        f1_score([(gold == label, predicted == label) for gold, predicted in items])
        for label in range(3)
    ]
    return sum(by_class) / len(by_class)
