"""The programs of one task: how many passed, and their time limits."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.sandbox import Verdict

#: The time limit of a program in seconds, as in the metric `code_eval` of the `evaluate` library.
DEFAULT_SECONDS = 3.0
#: A program may take this many times as long as the canonical solution with the same tests …
FACTOR = 5.0
#: … but not longer than this many seconds.
MAX_SECONDS = 60.0


@dataclass
class TaskPrograms:
    """What became of the programs of one task, for the results."""

    #: Number of different programs.
    programs: int = 0
    #: How many of them were run now; the verdicts of the others were stored.
    run: int = 0
    #: Number of different programs by outcome.
    outcomes: Counter[str] = field(default_factory=Counter)
    #: The seconds that the canonical solution needs for its tests, for each text of tests; only
    #: solutions that pass.
    canonical: Mapping[str, float] = field(default_factory=dict)
    #: Numbers of the documents whose canonical solution fails.
    canonical_failed: list[int] = field(default_factory=list)
    #: The prompts of the documents with each text of tests.
    prompts: dict[str, set[str]] = field(default_factory=dict)
    _judged: set[bytes] = field(default_factory=set)
    _limits: set[float] = field(default_factory=set)

    def calibrate(self, seconds: Mapping[str, float], failed: Sequence[int]) -> None:
        """Sets the time limits from the seconds that canonical solutions took, by their tests.

        `failed` are the numbers of the documents whose canonical solution fails.
        """
        self.canonical, self.canonical_failed = dict(seconds), list(failed)

    def add_prompt(self, prompt: str, tests: Sequence[str]) -> None:
        """Adds the prompt of a document whose programs are tested by `tests`."""
        for test in tests:
            self.prompts.setdefault(test, set()).add(prompt)

    def given(self, program: str, test: str) -> str:
        """Returns the prompt that a program with this test begins with; "" if there is none.

        A program that does not begin with its prompt need not contain what the prompt does.
        """
        begun = [text for text in self.prompts.get(test, ()) if program.startswith(text)]
        return max(begun, key=len, default="")

    def limit(self, test: str, seconds: float = DEFAULT_SECONDS) -> float:
        """Returns the time limit for a program with this test, to which task code allows `seconds`.

        That is `seconds`, doubled until it is `FACTOR` times the time of the canonical solution.
        Doubling keeps the limit the same from run to run, in spite of small differences in time, so
        that stored verdicts remain valid.
        """
        needed = FACTOR * self.canonical.get(test, 0.0)
        if seconds <= 0 or needed <= seconds:
            return seconds
        doubled = seconds * 2.0 ** math.ceil(math.log2(needed / seconds))
        return max(seconds, min(doubled, MAX_SECONDS))

    def count_run(self, programs: int) -> None:
        """Counts programs that were run."""
        self.run += programs

    def count(self, key: bytes, verdict: Verdict, limit: float) -> None:
        """Counts the verdict of a program, which `key` identifies; only the first time.

        `limit` is the time limit that the program had.
        """
        if key not in self._judged:
            self._judged.add(key)
            self._limits.add(limit)
            self.programs += 1
            self.outcomes[verdict.outcome] += 1

    def describe(self) -> dict[str, Any]:
        """Returns the entry of the task in the results."""
        limits = self._limits or {DEFAULT_SECONDS}
        return {
            "programs": self.programs,
            "run": self.run,
            "outcomes": dict(sorted(self.outcomes.items())),
            "wall_seconds": [min(limits), max(limits)],
            "canonical_solutions": len(self.canonical),
            "slowest_canonical_seconds": round(max(self.canonical.values(), default=0.0), 3),
            "canonical_failed": self.canonical_failed,
        }
