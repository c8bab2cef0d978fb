"""Differences between the scores of disjoint sets of documents, with their uncertainty."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.results.summarize import Score
from lm_eval.stats.intervals import Interval, combined_interval


@dataclass(frozen=True)
class Difference:
    """The score of the clean documents minus that of the contaminated ones."""

    value: float
    stderr: float | None
    """The standard error; None if one of the scores has none."""
    interval: Interval | None
    """The confidence interval; None if one of the scores has none."""
    documents: int
    """Number of documents of both kinds."""
    contaminated: float | None = None
    """The score of the contaminated documents; None for a mean over tasks."""

    def to_row(self) -> dict[str, Any]:
        """Returns the difference as a dictionary, as it is written to the results.

        The keys are `difference`, `stderr` and, if they are known, `contaminated` and `interval`.
        """
        row: dict[str, Any] = {"difference": self.value, "stderr": number_or_na(self.stderr)}
        if self.contaminated is not None:
            row = {"contaminated": self.contaminated, **row}
        return row if self.interval is None else {**row, "interval": list(self.interval)}


def difference_of(clean: Score, contaminated: Score, documents: int) -> Difference:
    """Returns the score `clean` minus the score `contaminated`, with its uncertainty.

    `documents` is the number of documents of both together.
    """
    return Difference(
        float(clean.value - contaminated.value),
        _root_of_squares([clean.stderr, contaminated.stderr]),
        _combined(
            (1, -1),
            (clean.value, contaminated.value),
            (clean.interval, contaminated.interval),
        ),
        documents,
        float(contaminated.value),
    )


def mean_difference(differences: Sequence[Difference], weights: Sequence[float]) -> Difference:
    """Returns the weighted mean of the differences of independent tasks; at least one."""
    shares = [weight / sum(weights) for weight in weights]
    pairs = list(zip(shares, differences, strict=True))
    return Difference(
        sum(share * one.value for share, one in pairs),
        _root_of_squares(
            None if one.stderr is None else share * one.stderr for share, one in pairs
        ),
        _combined(
            shares, [one.value for one in differences], [one.interval for one in differences]
        ),
        sum(one.documents for one in differences),
    )


def number_or_na(value: float | None) -> float | str:
    """Returns a number as it is; `N/A`, as in results files, for None, NaN and infinities."""
    return "N/A" if value is None or not math.isfinite(value) else value


def _combined(
    weights: Sequence[float], values: Sequence[float], intervals: Sequence[Interval | None]
) -> Interval | None:
    """Returns the confidence interval of a weighted sum of independent values.

    `intervals` are those of the values; None if one of them is None.
    """
    known = [interval for interval in intervals if interval is not None]
    return None if len(known) < len(intervals) else combined_interval(weights, values, known)


def _root_of_squares(errors: Iterable[float | None]) -> float | None:
    """Returns the standard error of a sum of independent values, given those of the values.

    None if one of them is None or not finite.
    """
    known = list(errors)
    if any(error is None or not math.isfinite(error) for error in known):
        return None
    return math.sqrt(sum(error**2 for error in known if error is not None))
