"""T5's F1 for CommitmentBank, from the labels that the model writes."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.api.metrics import f1_score

LABELS = ("entailment", "contradiction", "neutral")


def mean_3class_f1(predictions: Sequence[str], references: Sequence[str]) -> tuple[int, int]:
    """Predicted and gold class; what is no label counts as the first."""
    predicted, gold = predictions[0], references[0]
    return (LABELS.index(predicted) if predicted in LABELS else 0, LABELS.index(gold))


def macro_f1(items: Sequence[tuple[int, int]]) -> float:
    by_class = [
        f1_score([(gold == label, predicted == label) for predicted, gold in items])
        for label in range(len(LABELS))
    ]
    return sum(by_class) / len(by_class)
