"""The programs of one task: how many passed, and the time limit that they had."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.sandbox import Verdict

#: The time limit of a program in seconds, as in the metric `code_eval` of the `evaluate` library.
DEFAULT_SECONDS = 3.0
#: A program may take this many times as long as the slowest canonical solution of its task.
FACTOR = 10.0


@dataclass
class TaskPrograms:
    """What became of the programs of one task, for the results."""

    #: Number of different programs.
    programs: int = 0
    #: How many of them were run now; the verdicts of the others were stored.
    run: int = 0
    #: Number of different programs by outcome.
    outcomes: Counter[str] = field(default_factory=Counter)
    #: Number of canonical solutions that passed; the time limit is calibrated by them.
    canonical: int = 0
    #: The longest time that one of them took, in seconds.
    slowest: float | None = None
    #: Numbers of the documents whose canonical solution fails.
    canonical_failed: list[int] = field(default_factory=list)
    _judged: set[bytes] = field(default_factory=set)

    def calibrate(self, seconds: Sequence[float], failed: Sequence[int]) -> None:
        """Sets the time limit from the seconds that canonical solutions took.

        Without any, the limit stays as it is. `failed` are the numbers of the documents whose
        canonical solution fails.
        """
        self.canonical, self.canonical_failed = len(seconds), list(failed)
        self.slowest = round(max(seconds), 3) if seconds else None

    def limit(self, seconds: float = DEFAULT_SECONDS) -> float:
        """Returns the time limit for programs to which task code allows `seconds`.

        That is `seconds`, doubled until it is `FACTOR` times the time of the slowest canonical
        solution. Doubling keeps the limit the same from run to run, in spite of small differences
        in time, so that stored verdicts remain valid.
        """
        needed = FACTOR * (self.slowest or 0.0) / seconds if seconds > 0 else 0.0
        return seconds * 2.0 ** math.ceil(math.log2(needed)) if needed > 1 else seconds

    def count_run(self, programs: int) -> None:
        """Counts programs that were run."""
        self.run += programs

    def count(self, key: bytes, verdict: Verdict) -> None:
        """Counts the verdict of a program, which `key` identifies; only the first time."""
        if key not in self._judged:
            self._judged.add(key)
            self.programs += 1
            self.outcomes[verdict.outcome] += 1

    def describe(self) -> dict[str, Any]:
        """Returns the entry of the task in the results."""
        return {
            "programs": self.programs,
            "run": self.run,
            "outcomes": dict(sorted(self.outcomes.items())),
            "wall_seconds": self.limit(),
            "canonical_solutions": self.canonical,
            "slowest_canonical_seconds": self.slowest,
            "canonical_failed": self.canonical_failed,
        }
