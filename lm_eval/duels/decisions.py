"""What a duel has found out: for each task, and for all documents of all tasks together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from lm_eval.stats.confidence_sequence import ConfidenceSequence
from lm_eval.stats.intervals import Interval


class Outcome(str, Enum):
    """How a duel about a task ended."""

    SETTLED = "settled"
    """The sign of the difference is known, though not all documents were asked."""
    COMPLETE = "complete"
    """All documents were asked, and one model has the higher score on them."""
    EQUAL = "equal"
    """All documents were asked, and the difference is exactly zero."""
    OPEN = "open"
    """The sign is not known; documents are left."""


@dataclass(frozen=True)
class Decision:
    """The result of a duel in one task, or in all tasks together.

    Attributes:
        name: the name of the task; None for all tasks together.
        metric: the metric that was decided by; None for all tasks together.
        filter: the filter pipeline it is computed under.
        documents: how many documents there are.
        asked: how many of them both models were asked.
        first: the mean score of the first model on these; None for all tasks together.
        second: that of the second model.
        advantage: how much better the first model is on the documents asked (the difference of the
            means, with its sign changed if lower scores are better).
        interval: an interval of the advantage on all documents, which is valid however often one
            has looked; a single number if all were asked.
        outcome: how the duel ended.
        better: the label of the model that is better on all documents; None if it is not known, or
            neither is.
    """

    name: str | None
    metric: str | None
    filter: str | None
    documents: int
    asked: int
    first: float | None
    second: float | None
    advantage: float
    interval: Interval
    outcome: Outcome
    better: str | None

    def record(self) -> dict[str, Any]:
        """Returns the decision as a dictionary for JSON."""
        return {**asdict(self), "interval": list(self.interval), "outcome": self.outcome.value}


def outcome_of(sequence: ConfidenceSequence) -> Outcome:
    """Returns how the duel ended whose differences a confidence sequence has seen."""
    if sequence.seen < sequence.documents:
        return Outcome.OPEN if sequence.sign is None else Outcome.SETTLED
    low, _ = sequence.interval()
    return Outcome.EQUAL if abs(low) * sequence.documents < 1e-9 else Outcome.COMPLETE


def decide(
    sequence: ConfidenceSequence,
    advantages: Sequence[float],
    labels: tuple[str, str],
    name: str | None = None,
    key: tuple[str, str] | None = None,
    means: tuple[float | None, float | None] = (None, None),
) -> Decision:
    """Returns the decision that a confidence sequence allows.

    Args:
        sequence: the confidence sequence.
        advantages: the differences that it has seen.
        labels: the labels of the two models.
        name: the name of the task; None for all tasks together.
        key: the metric and the filter pipeline, once they are chosen.
        means: the mean scores of the two models.
    """
    outcome, interval = outcome_of(sequence), sequence.interval()
    better = None
    if outcome is Outcome.COMPLETE:  # the documents themselves, not the bets on them
        better = labels[0] if interval[0] > 0 else labels[1]
    elif outcome is Outcome.SETTLED:
        better = labels[0] if sequence.sign == 1 else labels[1]
    return Decision(
        name=name,
        metric=key[0] if key else None,
        filter=key[1] if key else None,
        documents=sequence.documents,
        asked=sequence.seen,
        first=means[0],
        second=means[1],
        advantage=sum(advantages) / len(advantages) if advantages else 0.0,
        interval=interval,
        outcome=outcome,
        better=better,
    )
