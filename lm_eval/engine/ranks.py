"""The executor for several processes (`accelerate launch`), each with its own copy of the model."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lm_eval.api.model import LM
from lm_eval.engine.executor import Obtain, Outcome, WrappingExecutor
from lm_eval.engine.in_process import InProcess
from lm_eval.engine.keys import prompts_hash, set_digests
from lm_eval.errors import ModelError
from lm_eval.launch import from_first

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)


class LaunchedRanks(WrappingExecutor):
    """Data parallelism: each process executes one share of the requests, rank 0 collects all.

    A share is a contiguous range of the requests.
    """

    def __init__(self, lm: LM) -> None:
        super().__init__(InProcess(lm))
        self._lm = lm
        self.collects = lm.rank == 0
        self.sees_every_answer = False

    def gather(self, value: Any) -> list[Any] | None:
        """Returns a list of the `value` of every process on rank 0, None on the others."""
        return self._lm.gather_object(value, dst=0)

    def divide(self, requests: Sequence[Instance], obtain: Obtain) -> list[Outcome] | None:
        """Returns the outcomes of all `requests` on rank 0, None on the others.

        Each process calls `obtain` with its share. If that raises, the process raises the same
        error once all processes have finished their shares; the others raise a `ModelError` for it,
        as they do if the processes built different requests. If the model class has its own
        `gather_object`, only rank 0 does.
        """
        lm = self._lm
        self._check_same_requests(requests)
        start, end = (_share_start(requests, lm.rank + i, lm.world_size) for i in (0, 1))
        failure: Exception | None = None
        outcomes: list[Outcome] = []
        try:
            outcomes = obtain(requests[start:end])
        except Exception as error:  # the others wait for this share, so the error is gathered too
            failure = error
            logger.error(
                "process %d: %s (The run stops when the other processes have finished their shares "
                "of the requests.)",
                lm.rank,
                error,
            )
        gathered = self.gather((outcomes, failure and str(failure)))
        problem = self._from_first(None if gathered is None else self._problem(gathered))
        if failure is not None:
            raise failure
        if problem:
            raise ModelError(problem)
        return None if gathered is None else [one for share, _ in gathered for one in share]

    def _problem(self, gathered: Sequence[Any]) -> str | None:
        """Returns what is wrong with the gathered shares; None if nothing is."""
        lm = self._lm
        if len(gathered) != lm.world_size:
            return (
                f"{type(lm).__name__}.world_size is {lm.world_size} processes, but its "
                f"gather_object returned the answers of {len(gathered)}; it must return a list "
                "with one entry per process."
            )
        failed = (f"process {rank}: {why}" for rank, (_, why) in enumerate(gathered) if why)
        return next(failed, None)

    def _from_first(self, problem: str | None) -> str | None:
        """Returns the problem that rank 0 found on every rank, so that none of them waits for it.

        With a `gather_object` of the model class, on rank 0 only.
        """
        replaced = getattr(self._lm.gather_object, "__func__", None) is not LM.gather_object
        return problem if replaced else from_first(problem)

    def _check_same_requests(self, requests: Sequence[Instance]) -> None:
        """Raises `ModelError` if the processes built different requests.

        Every process must call it. Each process executes a range of positions, so that answers
        would be assigned to wrong requests.
        """
        set_digests(request for request in requests if request.digest is None)
        found = self.gather((prompts_hash(requests), len(requests)))
        problem = None
        if found is not None and len(set(found)) > 1:
            tasks = ", ".join(sorted({str(request.task_name) for request in requests}))
            problem = (
                f"the processes built different requests (tasks: {tasks}). Something in a task "
                "differs between processes, such as the order of a set or a random draw without a "
                "seed. Sort the set or seed the draw, set PYTHONHASHSEED=0 for all processes, or "
                "use only one process."
            )
        if problem := self._from_first(problem):
            raise ModelError(problem)


def _share_start(requests: Sequence[Instance], rank: int, processes: int) -> int:
    """Returns the position (from 0) of the first request in the share of process `rank`.

    A share ends where that of `rank + 1` starts; for `rank=processes` the position is
    `len(requests)`. The repeats of a request are never split over two processes: their store keys
    contain the number of the repeat, which is counted within a share.
    """
    start = len(requests) * rank // processes
    while 0 < start < len(requests) and requests[start] is requests[start - 1]:
        start -= 1
    return start
