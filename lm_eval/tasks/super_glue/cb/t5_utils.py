"""T5's metric for CommitmentBank: mean F1 of the classes that the model generates as words."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.api.metrics import f1_score

LABELS = ("entailment", "contradiction", "neutral")


def mean_3class_f1(predictions: Sequence[str], references: Sequence[str]) -> tuple[int, int]:
    """Returns the indices of the predicted and the gold class; an unknown label counts as 0."""
    predicted, gold = predictions[0], references[0]
    return (LABELS.index(predicted) if predicted in LABELS else 0, LABELS.index(gold))


def macro_f1(items: Sequence[tuple[int, int]]) -> float:
    """Returns the unweighted mean of the classes' F1 over (predicted, gold) pairs."""
    by_class = [
        f1_score([(gold == label, predicted == label) for predicted, gold in items])
        for label in range(len(LABELS))
    ]
    return sum(by_class) / len(by_class)
