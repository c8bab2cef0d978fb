"""What a worker has been given, and what is counted while requests are answered."""

from __future__ import annotations

from dataclasses import dataclass, field

from lm_eval.api.usage import Usage
from lm_eval.engine.workers.crew import Worker
from lm_eval.engine.workers.messages import Finished
from lm_eval.engine.workers.portions import Portion


@dataclass(eq=False)
class Assignment:
    """A portion that a worker has."""

    worker: Worker
    portion: Portion
    given: float
    """When it was sent."""
    began: float | None = None
    """When the worker began with it, as far as the driver knows."""
    accepted: set[int] = field(default_factory=set)
    """The positions whose outcomes were taken from this assignment."""
    is_cancelled: bool = False

    def begin(self, now: float) -> None:
        """Notes that the worker has begun, unless that is known."""
        self.began = self.began or now

    def cancel(self) -> None:
        """Notes that nobody needs it any more."""
        self.is_cancelled = True


@dataclass
class Counts:
    """What was counted while requests were answered."""

    usage: Usage = field(default_factory=Usage)
    totals: dict[str, int] = field(default_factory=dict)
    """What the `usage` methods of the models counted."""
    reassigned: int = 0
    """How many requests were given to a worker again: after a loss, or to a second one."""
    quarantined: int = 0
    portions: int = 0

    def count_portion(self) -> None:
        """Counts a portion that is given to a worker."""
        self.portions += 1

    def count_again(self, requests: int) -> None:
        """Counts requests that are given to a worker again."""
        self.reassigned += requests

    def count_given_up(self) -> None:
        """Counts a request that is given up."""
        self.quarantined += 1

    def add(self, finished: Finished) -> None:
        """Adds what was counted for a portion."""
        self.usage.add(finished.usage)
        for name, value in finished.totals.items():
            self.totals[name] = self.totals.get(name, 0) + value

    def take_usage(self) -> Usage:
        """Returns the usage since the last call."""
        taken, self.usage = self.usage, Usage()
        return taken
