"""Matches the documents of two runs of a task, and finds what differs besides the model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lm_eval.comparison.scored_runs import ScoredTask
from lm_eval.comparison.task_settings import prompt_differences, setting_differences


@dataclass(frozen=True)
class Pairing:
    """The common documents of two runs of a task.

    Attributes:
        pairs: the positions of the common documents, `(in the first run, in the second)`.
        first_only: how many documents only the first run scored.
        second_only: how many documents only the second run scored.
        unequal: what differs between the runs besides the model and the documents, in words.
    """

    pairs: Sequence[tuple[int, int]]
    first_only: int
    second_only: int
    unequal: Sequence[str]


def pair_documents(first: ScoredTask, second: ScoredTask) -> Pairing:
    """Returns the documents that two runs of a task have in common, and what else differs.

    Documents are the same if their numbers are, and, where it is known, their content.
    """
    places = {number: place for place, number in enumerate(second.documents)}
    pairs = [
        (place, places[number]) for place, number in enumerate(first.documents) if number in places
    ]
    unequal = setting_differences(first.settings, second.settings)
    if first.hashes and second.hashes:
        same = [(a, b) for a, b in pairs if first.hashes[a] == second.hashes[b]]
        if len(same) < len(pairs):
            unequal.append(f"the data: {len(pairs) - len(same)} of {len(pairs)} documents differ")
        pairs = same
    # Other settings explain different prompts, and are easier to read.
    unequal = unequal or prompt_differences(first.settings, second.settings, pairs)
    if first.unanswered or second.unanswered:
        unequal.append(_unfinished(first, second))
    return Pairing(
        pairs, len(first.documents) - len(pairs), len(second.documents) - len(pairs), unequal
    )


def _unfinished(first: ScoredTask, second: ScoredTask) -> str:
    """Returns in words how far unfinished runs of a task are, and what that means."""
    answered, of = (
        " and ".join(map(str, numbers))
        for numbers in zip(
            *((len(run.documents), len(run.documents) + run.unanswered) for run in (first, second)),
            strict=True,
        )
    )
    return (
        f"unfinished: {answered} of {of} documents are answered. p-values and intervals only hold "
        "if the scores did not decide when the runs stopped, as they do in a duel"
    )
