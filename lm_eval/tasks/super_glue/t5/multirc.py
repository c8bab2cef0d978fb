"""T5's scores for MultiRC: F1 over answers, and questions with all answers judged right.

Gold answers come as `question number_True` or `…_False`, so that answers to one question are known.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from lm_eval.api.metrics import f1_score

LABELS = ("False", "True")


def _judged(prediction: str, gold: str) -> tuple[int, int]:
    """Predicted and gold class; what is no label counts as wrong."""
    expected = LABELS.index(gold)
    found = LABELS.index(prediction) if prediction in LABELS else 1 - expected
    return found, expected


def f1(predictions: Sequence[str], references: Sequence[str]) -> tuple[int, int]:
    return _judged(predictions[0], references[0].split("_")[-1])


def agg_f1(items: Sequence[tuple[int, int]]) -> float:
    return f1_score([(gold, predicted) for predicted, gold in items])


def em(predictions: Sequence[str], references: Sequence[str]) -> tuple[str, int, int]:
    question, gold = references[0].split("_")
    return (question, *_judged(predictions[0], gold))


def agg_em(items: Sequence[tuple[str, int, int]]) -> float:
    right: dict[str, bool] = defaultdict(lambda: True)
    for question, predicted, gold in items:
        right[question] &= predicted == gold
    return sum(right.values()) / len(right)
