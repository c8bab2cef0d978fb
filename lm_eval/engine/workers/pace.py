"""How long portions take, and which of them take much longer than expected."""

from __future__ import annotations

from collections import deque
from statistics import median

from lm_eval.engine.workers.assignments import Assignment

#: A portion is copied if it takes this many times longer than expected, and at least so long.
STRAGGLER_FACTOR = 2.0
STRAGGLER_SECONDS = 2.0
#: The model may hang on a portion that takes this many times longer, and at least so long.
STUCK_FACTOR = 10.0
STUCK_SECONDS = 300.0
#: How long to wait if it is not known how long a portion takes.
UNKNOWN_SECONDS = 60.0


class Pace:
    """The time that the last portions have taken, relative to their cost."""

    def __init__(self) -> None:
        self._seconds_per_cost: deque[float] = deque(maxlen=64)

    def count(self, assignment: Assignment, seconds: float) -> None:
        """Counts a portion that was answered in so many seconds."""
        self._seconds_per_cost.append(seconds / max(1, assignment.portion.cost))

    def is_straggler(self, assignment: Assignment, now: float) -> bool:
        """Returns whether a portion takes so long that another worker should try it."""
        return self._exceeds(assignment, now, STRAGGLER_FACTOR, STRAGGLER_SECONDS)

    def is_stuck(self, assignment: Assignment, now: float) -> bool:
        """Returns whether a portion takes so long that the model may hang on it."""
        return self._exceeds(assignment, now, STUCK_FACTOR, STUCK_SECONDS)

    def _exceeds(self, assignment: Assignment, now: float, factor: float, least: float) -> bool:
        if assignment.began is None:
            return False
        expected = UNKNOWN_SECONDS
        if self._seconds_per_cost:
            expected = median(self._seconds_per_cost) * assignment.portion.cost
        return now - assignment.began > max(least, factor * expected)
