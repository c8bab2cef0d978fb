"""Confidence sequences: intervals of a mean that are valid however often one looks at them.

Documents are drawn in random order without replacement from N documents with differences between
-1 and 1. For each candidate mean m of all N, a bettor plays against the claim "the mean is m": if
it is true, the documents that are left have the mean m_t = (N·m - sum so far) / (N - t), so each
game is fair, and the bettor's capital exceeds 1/α with probability at most α at any time (Ville's
inequality). The candidates whose capital stayed below that form the interval.

Source: I. Waudby-Smith and A. Ramdas, "Estimating means of bounded random variables by betting"
(JRSS B, 2024), section 5 for drawing without replacement. The bets here are a mixture: equal parts
of the capital are bet with fixed stakes, so nothing has to be estimated beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from lm_eval.stats.intervals import Interval

Array = np.ndarray[Any, np.dtype[np.float64]]

STAKES = np.geomspace(0.005, 0.95, 16)
"""The stakes of the mixture: small ones find small differences, large ones find large ones fast."""
STEPS = 30
"""How often the search for an end of the interval halves its range."""


class ConfidenceSequence:
    """The sign and an interval of the mean difference of all documents, from those seen so far.

    The sign is settled as soon as a mean of 0 is excluded: `sign` is then 1 or -1, and stays so.
    False decisions have a probability of at most `alpha` in total, however often `sign` is read.
    """

    def __init__(self, documents: int, alpha: float = 0.05) -> None:
        """Starts before the first document.

        Args:
            documents: the number N of all documents.
            alpha: the probability of an error that is allowed.
        """
        self.documents, self.alpha = documents, alpha
        self._values: list[float] = []
        # Bets that the mean is above 0, and that it is below 0.
        self._bets = [_Bets(documents, 0.0, side, alpha) for side in (1, -1)]

    @property
    def seen(self) -> int:
        """The number of documents seen so far."""
        return len(self._values)

    def add(self, differences: Sequence[float] | Array) -> None:
        """Adds the differences of the next documents, in the order in which they were drawn.

        Raises `ValueError` for more than the announced number of documents, and for differences
        below -1 or above 1.
        """
        values = np.asarray(differences, dtype=float)
        if self.seen + len(values) > self.documents:
            raise ValueError(f"there are only {self.documents} documents")
        if not np.all(np.abs(values) <= 1):
            raise ValueError("differences must be between -1 and 1")
        for bets in self._bets:
            bets.play(values)
        self._values.extend(values.tolist())

    @property
    def sign(self) -> int | None:
        """1 or -1 if the sign of the mean is settled, 0 if the mean is exactly 0, else None."""
        for bets in self._bets:
            if bets.won:
                return bets.side
        if self.seen < self.documents:
            return None
        total = math.fsum(self._values)
        return 0 if abs(total) < 1e-9 else int(math.copysign(1, total))

    def interval(self) -> Interval:
        """Returns the interval of the mean difference of all documents."""
        if self.seen >= self.documents:
            mean = math.fsum(self._values) / self.documents
            return mean, mean
        return self._end(1), self._end(-1)

    def _end(self, side: int) -> float:
        """Returns the lower end (`side` 1) or the upper end (-1) of the interval, by bisection.

        A bet on "above m" that is won excludes m and all smaller means.
        """
        values = np.asarray(self._values)
        excluded, possible = -1.0 * side, 1.0 * side
        for _ in range(STEPS):
            middle = (excluded + possible) / 2
            bets = _Bets(self.documents, middle, side, self.alpha)
            bets.play(values)
            excluded, possible = (middle, possible) if bets.won else (excluded, middle)
        return excluded


class _Bets:
    """A bettor against the claim that the mean of all documents is `mean`.

    Attributes:
        side: 1 if it wins when the mean is larger, -1 if it wins when the mean is smaller.
        won: whether the claim is excluded.
    """

    def __init__(self, documents: int, mean: float, side: int, alpha: float) -> None:
        self.side, self.won = side, False
        self._left, self._rest = documents, documents * mean
        self._bound = math.log(2 / alpha)  # each side may be wrong with probability alpha / 2
        self._capital = np.zeros(len(STAKES))  # logarithms

    def play(self, values: Array) -> None:
        """Bets on the next documents."""
        if self.won or not len(values):
            return
        # The mean of the documents that are left before each, if the claim is true.
        left = self._left - np.arange(len(values))
        rest = self._rest - np.concatenate([[0.0], np.cumsum(values)])
        means = rest[:-1] / left
        impossible = self.side * means < -1 - 1e-9
        means = np.clip(means, -1.0, 1.0)
        # The worst result of a bet is -(1 + side * mean), so that these stakes never lose all.
        stakes = STAKES / np.maximum(1.0 + self.side * means, 0.5)[:, None]
        gains = stakes * (self.side * (values - means))[:, None]
        logs = np.cumsum(np.log1p(gains), axis=0) + self._capital
        highest = logs.max(axis=1)
        capital = highest + np.log(np.mean(np.exp(logs - highest[:, None]), axis=1))
        self.won = bool((impossible | (capital >= self._bound)).any())
        self._capital, self._left, self._rest = logs[-1], self._left - len(values), float(rest[-1])
        if self._left and self.side * self._rest / self._left < -1 - 1e-9:
            self.won = True  # the documents that are left cannot make it true
