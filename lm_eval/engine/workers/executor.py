"""The executor of runs whose model is held by workers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Sized
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from lm_eval.engine.executor import Executor, Outcome, Report
from lm_eval.engine.progress import progress
from lm_eval.engine.workers.assignments import Counts
from lm_eval.engine.workers.crew import Crew
from lm_eval.engine.workers.messages import SetContext
from lm_eval.engine.workers.scheduler import Scheduler

if TYPE_CHECKING:
    from lm_eval.api.context import RunContext
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

_MISSING = object()


class WorkersExecutor(Executor):
    """Sends requests to the workers of a crew, whichever are free."""

    def __init__(self, crew: Crew, batch: int | None = None) -> None:
        """Takes a crew that is started, and the batch size of the model, if it is fixed."""
        self.crew = crew
        self._scheduler = Scheduler(crew, batch)

    @property
    def counts(self) -> Counts:
        """What was counted so far."""
        return self._scheduler.counts

    def running(self, context: RunContext) -> AbstractContextManager[None]:
        """Returns a context manager that passes `context` to the models of all workers.

        What they count is added to `context.usage` when it is left, and when `usage` is called.
        """
        return self._in_context(context)

    @contextmanager
    def _in_context(self, context: RunContext) -> Iterator[None]:
        self._context = context
        self._scheduler.reset_counts()
        self.crew.set_context(
            SetContext(context.seed, context.chat_template, context.think_end_token)
        )
        try:
            yield
        finally:
            self.crew.set_context(None)

    def usage(self) -> dict[str, int]:
        """Returns the sums of what the models of all workers counted (`LM.usage`)."""
        return dict(self.counts.totals)

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        """Answers requests with the workers; returns one outcome per request, in order."""
        outcomes: dict[int, Outcome] = {}
        total = len(requests) if isinstance(requests, Sized) else 0
        self.counts.take_usage()
        workers = len(self.crew.workers)
        with progress(total, f"Answering ({workers} worker{'s' if workers > 1 else ''})") as bar:

            def deliver(positions: Sequence[int], found: Sequence[Outcome]) -> None:
                if report is not None:
                    report(positions, found)
                known = len(outcomes)
                outcomes.update(zip(positions, found, strict=True))
                bar.update(len(outcomes) - known)

            try:
                self._scheduler.run(kind, requests, deliver)
            finally:
                self._context.usage.add(self.counts.take_usage())
        self.crew.log_rates()
        counts = self.counts
        logger.debug(
            "%s: %d requests in %d portions; %d were given to a worker again, %d were given up, "
            "%d workers were replaced",
            kind,
            len(outcomes),
            counts.portions,
            counts.reassigned,
            counts.quarantined,
            self.crew.restarts,
        )
        return [outcomes[position] for position in range(len(outcomes))]
