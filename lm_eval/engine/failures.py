"""Ends a run in which too many requests fail."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Outcome, Report
from lm_eval.errors import ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


class FailureLimit:
    """Counts the failed requests of a run, and raises when there are too many."""

    def __init__(self, max_failed: float | None, requests: int) -> None:
        """Sets the limit.

        Args:
            max_failed: the number of requests that may fail or, below 1, their share, rounded up.
                None for any number.
            requests: the number of requests of the run, repeats included.
        """
        self.requests, self.failed = requests, 0
        self.allowed: float = math.inf
        if max_failed is not None:
            share = max_failed < 1
            self.allowed = math.ceil(max_failed * requests) if share else int(max_failed)

    def add(self, request: Instance, failure: Failure) -> None:
        """Counts a failed request; raises `ModelError` if more have failed than are allowed."""
        self.failed += 1
        if self.failed > self.allowed:
            raise ModelError(
                f"{self.failed} of {self.requests} requests failed, more than --max_failed allows "
                f"({self.allowed:g}), so the run was stopped. The last one (task "
                f"{request.task_name}, document {request.doc_id}): {failure.reason.rstrip('.')}. "
                "Run the same command again to continue after the cause is removed; with an output "
                "path, only the missing answers are asked for."
            )


class LimitedReport:
    """A `Report` that counts failed requests, and passes everything on to another `Report`."""

    def __init__(
        self, limit: FailureLimit, requests: Sequence[Instance], report: Report | None
    ) -> None:
        """Takes the limit, the requests that are executed, and the report to pass outcomes to."""
        self._limit, self._requests, self._report = limit, requests, report
        self._counted: set[int] = set()

    def __call__(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        """Passes the outcomes of the requests at `positions` on, and counts failures among them."""
        if self._report is not None:
            self._report(positions, outcomes)
        self.count(positions, outcomes)

    def count(self, positions: Iterable[int], outcomes: Iterable[Outcome]) -> None:
        """Counts the failures among outcomes; those of a position that was counted are skipped."""
        for position, outcome in zip(positions, outcomes, strict=True):
            if isinstance(outcome, Failure) and position not in self._counted:
                self._counted.add(position)
                self._limit.add(self._requests[position], outcome)
