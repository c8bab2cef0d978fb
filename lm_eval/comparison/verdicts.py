"""Puts comparisons into words, and decides whether a candidate passes a gate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import IntEnum

from lm_eval.comparison.differences import BOOTSTRAP, IDENTICAL, Difference
from lm_eval.comparison.rows import Comparison, Row

_EQUAL = 1e-12
"""Smaller differences of scores are rounding errors."""


def verdict(row: Row, confidence: float) -> str:
    """Returns one sentence about a row that a reader can quote."""
    difference = row.difference
    what = f"{row.name}, {row.metric}" + ("" if row.filter == "none" else f" ({row.filter})")
    if difference.test == IDENTICAL:
        return (
            f"{what}: {row.first} and {row.second} have the same score on every document "
            f"({difference.documents:,})."
        )
    if math.isnan(difference.stderr):
        return (
            f"{what}: the scores differ by {abs(difference.value):.4g}; the standard error of "
            f"{_count(difference.documents)} is not known."
        )
    unit, scale = (" points", 100.0) if row.is_share else ("", 1.0)
    details = (
        f"{100 * confidence:.4g}%, {difference.documents:,} documents, p {_p(difference.p_value)}"
    )
    seen = f"differences under {row.detectable * scale:.2g}{unit} could not have been seen reliably"
    size = f"{_size(difference, scale)}{unit} ({details})"
    if abs(difference.value) < _EQUAL:
        low, high = (f"{end * scale:.2g}{unit}" for end in difference.interval)
        return (
            f"{what}: undecided. {row.first} and {row.second} have equal scores, though not on "
            f"every document; the difference is between {low} and {high} ({details})."
        )
    if row.better is None:
        higher = row.first if difference.value > 0 else row.second
        undecided = "" if row.significant else "undecided. "
        return f"{what}: {undecided}{higher} scores higher by {size}; {seen}."
    other = row.second if row.better == row.first else row.first
    return f"{what}: {row.better} is better than {other} by {size}; {seen}."


def _size(difference: Difference, scale: float) -> str:
    """Returns the size of a difference and its interval, of which a bootstrap has two ends."""
    low, high = (end * scale for end in difference.interval)
    size = f"{abs(difference.value) * scale:.2g}"
    if difference.test != BOOTSTRAP:
        return f"{size} ± {(high - low) / 2:.2g}"
    low, high = (low, high) if difference.value > 0 else (-high, -low)
    return f"{size} [{low:.2g} to {high:.2g}]"


def _count(documents: int) -> str:
    return "1 document" if documents == 1 else f"{documents:,} documents"


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"= {value:.2g}"


def summary(comparison: Comparison) -> list[str]:
    """Returns one sentence per pair of runs: how many tasks each is better at."""
    sentences = []
    pairs = dict.fromkeys((row.first, row.second) for row in comparison.rows)
    alpha = 1 - comparison.confidence
    for first, second in pairs:
        rows = [r for r in comparison.rows if (r.first, r.second) == (first, second)]
        tested = [row for row in rows if not row.group]
        decided = [row for row in tested if row.p_holm < alpha and row.better is not None]
        wins = [sum(row.better == label for row in decided) for label in (first, second)]
        sentences.append(
            f"{first} against {second}: of {len(tested)} scores, {first} is better in {wins[0]}, "
            f"{second} in {wins[1]}, {len(tested) - sum(wins)} undecided (p-values corrected by "
            f"Holm's method, {alpha:.2g})."
        )
    return sentences


class Gate(IntEnum):
    """The result of a gate, which is the exit code of `lm-eval compare --gate`."""

    PASSED = 0
    FAILED = 1
    UNDECIDED = 3


def gate(rows: Sequence[Row], margin: float) -> tuple[Gate, list[str]]:
    """Returns whether the second run is not worse than the first by more than `margin`.

    A row passes if the whole interval of the difference is within the margin, and fails if all of
    it is beyond. The gate fails if a row fails, and is undecided if a row is neither. Also returns
    one sentence per row that does not pass.
    """
    results, sentences = [], []
    for row in rows:
        low, high = row.difference.interval
        # How much worse the second run is: the first score minus the second, if higher is better.
        worst, best = (high, low) if row.higher_is_better is not False else (-low, -high)
        if worst <= margin:
            results.append(Gate.PASSED)
            continue
        failed = best > margin
        results.append(Gate.FAILED if failed else Gate.UNDECIDED)
        if math.isnan(worst):
            sentences.append(
                f"{row.name}, {row.metric}: the gate is undecided: the standard error of "
                f"{_count(row.difference.documents)} is not known."
            )
            continue
        how = "fails" if failed else "is undecided"
        sentences.append(
            f"{row.name}, {row.metric}: the gate {how}: {row.second} is worse than {row.first} by "
            f"{best:.4g} to {worst:.4g}, the margin is {margin:g}."
        )
    if Gate.FAILED in results:
        return Gate.FAILED, sentences
    return (Gate.UNDECIDED if Gate.UNDECIDED in results else Gate.PASSED), sentences
