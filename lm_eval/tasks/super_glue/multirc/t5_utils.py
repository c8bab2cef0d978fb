"""T5's metrics for MultiRC: F1 over all answers, and the share of fully correct questions.

Targets have the form `<question number>_True` or `…_False`, so that the answers to one question can
be grouped.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lm_eval.api.metrics import f1_score

LABELS = ("False", "True")


def _classes(prediction: str, gold: str) -> tuple[int, int]:
    """Returns the predicted and the gold class (0 or 1); an unknown prediction counts as wrong."""
    expected = LABELS.index(gold)
    found = LABELS.index(prediction) if prediction in LABELS else 1 - expected
    return found, expected


def f1(predictions: Sequence[str], references: Sequence[str]) -> tuple[int, int]:
    """Returns the predicted and the gold class of one answer, for `agg_f1`."""
    return _classes(predictions[0], references[0].split("_")[-1])


def agg_f1(items: Sequence[tuple[int, int]]) -> float:
    """Returns the F1 over (predicted, gold) pairs."""
    return f1_score([(gold, predicted) for predicted, gold in items])


def em(predictions: Sequence[str], references: Sequence[str]) -> tuple[str, int, int]:
    """Returns the question's number and the two classes of one answer, for `agg_em`."""
    question, gold = references[0].split("_")
    return (question, *_classes(predictions[0], gold))


def agg_em(items: Sequence[tuple[str, int, int]]) -> float:
    """Returns the share of questions of which all answers are judged correctly."""
    right: dict[str, bool] = defaultdict(lambda: True)
    for question, predicted, gold in items:
        right[question] &= predicted == gold
    return sum(right.values()) / len(right)
