"""The seam between the engine and whatever runs a model: this process, several, or a cluster.

`engine/answer.py` looks requests up in the store, hands the missing ones to an `Executor`, and
stores each answer as it is reported. It does not know where the model runs.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval.api.context import RunContext
    from lm_eval.api.instance import Instance

#: An answer, or the `api.instance.Failure` that stands in its place.
Outcome = Any

#: Called with the positions of requests and the outcome of each, as they come.
Report = Callable[[Sequence[int], Sequence[Outcome]], None]

#: Called with requests; returns their outcomes, from the store or from `Executor.execute`.
Obtain = Callable[[Sequence["Instance"]], list[Outcome]]


class Executor(abc.ABC):
    """Puts requests to a model.

    To write one, implement `execute`. An executor for several processes that all run the evaluation
    (as `accelerate launch` starts them) also overrides `divide`, `gather`, `collects` and
    `sees_every_answer`. `InProcess` (engine/in_process.py) is the simplest, `LaunchedRanks`
    (engine/ranks.py) the one for launched processes. To change an existing one, derive from
    `WrappingExecutor`.

    Example, an executor that asks requests one at a time::

        class OneByOne(Executor):
            def __init__(self, lm: LM) -> None:
                self._inner = InProcess(lm)

            def execute(self, kind, requests, report):
                outcomes = []
                for position, request in enumerate(requests):
                    outcomes += self._inner.execute(kind, [request], None)
                    if report is not None:
                        report([position], outcomes[-1:])
                return outcomes
    """

    #: Whether this process gets all answers and writes the results; one process does.
    collects: bool = True
    #: Whether requests must be handed over even if their answers are stored.
    needs_every_request: bool = False
    #: Whether every answer is reported in this process, also those that another one asked for.
    sees_every_answer: bool = True

    @abc.abstractmethod
    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        """Asks requests of one kind and returns one outcome per request, in order.

        Args:
            kind: `loglikelihood`, `loglikelihood_rolling` or `generate_until`.
            requests: the requests, numbered by their position. A repeated request occurs several
                times in a row as the same object. May be empty.
            report: may be called as outcomes come, from any thread but never concurrently, with
                positions and outcomes: what is reported is stored at once, and survives a crash.
                The outcomes that are returned have the last word. None if outcomes need not be
                reported.

        Raises:
            EvalError: if the run cannot go on. A request that fails by itself is a `Failure` among
                the outcomes instead.
        """

    def running(self, context: RunContext) -> AbstractContextManager[None]:
        """Entered before the first request and left after the last; hands the context over."""
        return _nothing()

    def usage(self) -> dict[str, int]:
        """Returns what the model counted in this process: tokens and requests (`LM.usage`)."""
        return {}

    def divide(self, requests: Sequence[Instance], obtain: Obtain) -> list[Outcome] | None:
        """Calls `obtain` with the requests that this process is responsible for.

        Returns the outcomes of all requests, or None in a process that does not collect.
        """
        return obtain(requests)

    def gather(self, value: Any) -> list[Any] | None:
        """Returns every process's value, or None in a process that does not collect."""
        return [value]


class WrappingExecutor(Executor):
    """Hands everything to another executor; override what you change.

    Example, an executor that logs how many requests it hands over::

        class Logging(WrappingExecutor):
            def execute(self, kind, requests, report):
                asked = list(requests)
                logger.info("%d requests of kind %s", len(asked), kind)
                return super().execute(kind, asked, report)
    """

    def __init__(self, inner: Executor) -> None:
        self.inner = inner
        self.collects = inner.collects
        self.needs_every_request = inner.needs_every_request
        self.sees_every_answer = inner.sees_every_answer

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        return self.inner.execute(kind, requests, report)

    def running(self, context: RunContext) -> AbstractContextManager[None]:
        return self.inner.running(context)

    def usage(self) -> dict[str, int]:
        return self.inner.usage()

    def divide(self, requests: Sequence[Instance], obtain: Obtain) -> list[Outcome] | None:
        return self.inner.divide(requests, obtain)

    def gather(self, value: Any) -> list[Any] | None:
        return self.inner.gather(value)


@contextmanager
def _nothing() -> Iterator[None]:
    yield
