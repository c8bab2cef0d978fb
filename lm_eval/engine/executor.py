"""The `Executor` interface: how requests are sent to a model.

`engine/answer.py` looks requests up in the store, passes the missing ones to an `Executor`, and
stores each answer as the executor reports it. Only the executor knows where the model runs: in this
process, in several processes, or on a cluster.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval.api.context import RunContext
    from lm_eval.api.instance import Instance

#: The result of one request: the model's answer, or an `api.instance.Failure` if it gave none.
Outcome = Any

#: A callback that an executor calls with the positions of finished requests and their outcomes.
Report = Callable[[Sequence[int], Sequence[Outcome]], None]

#: A function that returns one outcome per request, from the store or from `Executor.execute`.
Obtain = Callable[[Sequence["Instance"]], list[Outcome]]


class Executor(abc.ABC):
    """Sends requests to a model and returns its answers.

    A subclass must implement `execute`; all other methods have defaults for a single process. If
    several processes run the same evaluation (`accelerate launch` starts them), the executor also
    overrides `divide`, `gather`, `collects` and `sees_every_answer`. `InProcess`
    (engine/in_process.py) is the simplest implementation, `LaunchedRanks` (engine/ranks.py) the one
    for several processes. Derive from `WrappingExecutor` to modify an existing executor. A new
    executor is selected in `choose_executor.executor_for`.

    Order of the calls in one run: `running` is entered. For each request type, `divide` is called;
    it calls `obtain`, which calls `execute` with the requests that have no stored answer (possibly
    an empty list). When all requests are done, `usage` and `gather` are called, and `running` is
    left.

    Example of an executor that sends one request at a time::

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

    #: Whether this process receives all answers, scores them and writes the results. True in
    #: exactly one of several processes.
    collects: bool = True
    #: Whether `execute` must get requests even if their answers are in the store. True if processes
    #: that hold parts of one model must all run the same batches.
    needs_every_request: bool = False
    #: Whether all answers are reported in this process, including those that other processes
    #: computed. Results of finished tasks are written during the run only if True.
    sees_every_answer: bool = True

    @abc.abstractmethod
    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        """Sends requests of one type to the model; returns one outcome per request, in order.

        Args:
            kind: the request type: `loglikelihood`, `loglikelihood_rolling` or `generate_until`.
            requests: the requests; may be empty. The position of a request in this sequence,
                counted from 0, identifies it in `report`. A request with repeats occurs several
                times in a row, as the same object.
            report: a callback `report(positions, outcomes)` that stores outcomes at once, so that
                they survive a crash. Calling it is optional. It may be called from any thread, but
                not from two threads at the same time. Where a reported outcome differs from the
                returned one, the returned one is stored in its place. None if nothing is stored.

        Returns:
            A list with one outcome per request, in the order of `requests`: a
            `(log-likelihood, is greedy)` pair, a log-likelihood, or generated text, depending on
            `kind`; or a `Failure` for a request that the model could not answer.

        Raises:
            EvalError: if the run cannot continue. If a single request fails, return a `Failure` for
                it instead.
        """

    def running(self, context: RunContext) -> AbstractContextManager[None]:
        """Returns a context manager that is active while requests are built and executed.

        Override it to pass `context` (seed, chat template, usage counters) to the model on entry,
        and to release resources on exit. The default does nothing.
        """
        return nullcontext()

    def usage(self) -> dict[str, int]:
        """Returns the model's token and request counts in this process, as `LM.usage` does.

        Called after the last request. The default returns an empty dictionary.
        """
        return {}

    def divide(self, requests: Sequence[Instance], obtain: Obtain) -> list[Outcome] | None:
        """Calls `obtain` with this process's share of `requests`; returns all outcomes.

        The default passes all requests to `obtain`.

        Args:
            requests: all requests of one type, the same in every process.
            obtain: returns the outcomes of the requests that are passed to it, in order. It reads
                them from the store or calls `execute`.

        Returns:
            The outcomes of all `requests`, in order, collected from all processes; None in a
            process that does not collect.
        """
        return obtain(requests)

    def gather(self, value: Any) -> list[Any] | None:
        """Returns a list of the `value` of every process, by rank.

        Returns None in a process that does not collect. Every process must call it. The default is
        for a single process.
        """
        return [value]


class WrappingExecutor(Executor):
    """An executor that forwards every call to another one, `inner`; override what differs.

    Example of an executor that logs the number of requests::

        class Logging(WrappingExecutor):
            def execute(self, kind, requests, report):
                requests = list(requests)
                logger.info("%d requests of type %s", len(requests), kind)
                return super().execute(kind, requests, report)
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
