"""Processes launched together (`accelerate launch`): each asks a share of the requests."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lm_eval.engine.executor import Obtain, Outcome, WrappingExecutor
from lm_eval.engine.in_process import InProcess
from lm_eval.engine.keys import note_digests, prompts_hash
from lm_eval.errors import ModelError

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)


class LaunchedRanks(WrappingExecutor):
    """Asks this process's share, a contiguous range; the first process gets all outcomes."""

    def __init__(self, lm: LM) -> None:
        super().__init__(InProcess(lm))
        self._lm = lm
        self.collects = lm.rank == 0
        self.sees_every_answer = False

    def gather(self, value: Any) -> list[Any] | None:
        return self._lm.gather_object(value, dst=0)

    def divide(self, requests: Sequence[Instance], obtain: Obtain) -> list[Outcome] | None:
        lm = self._lm
        self._check_alike(requests)
        start, end = (_share_start(requests, lm.rank + i, lm.world_size) for i in (0, 1))
        failure: Exception | None = None
        outcomes: list[Outcome] = []
        try:
            outcomes = obtain(requests[start:end])
        except Exception as error:  # the others wait for this share, so they must be told
            failure = error
            logger.error("process %d: %s (The others finish their shares.)", lm.rank, error)
        gathered = self.gather((outcomes, failure and str(failure)))
        if failure is not None:
            raise failure
        if gathered is None:
            return None
        if len(gathered) != lm.world_size:
            raise ModelError(
                f"{type(lm).__name__} says that it runs in {lm.world_size} processes, but its "
                f"gather_object brought the answers of {len(gathered)}; it must bring them all."
            )
        for rank, (_, problem) in enumerate(gathered):
            if problem:
                raise ModelError(f"process {rank}: {problem}")
        return [outcome for share, _ in gathered for outcome in share]

    def _check_alike(self, asked: Sequence[Instance]) -> None:
        """Raises if the processes hold different requests: answers would be mixed up."""
        note_digests(request for request in asked if request.digest is None)
        found = self.gather((prompts_hash(asked), len(asked)))
        if found is not None and len(set(found)) > 1:
            tasks = ", ".join(sorted({str(request.task_name) for request in asked}))
            raise ModelError(
                f"the processes have made different requests ({tasks}): something in a task "
                "differs from process to process, such as the order of a set or an unseeded draw. "
                "Sort it or seed it, start the processes with PYTHONHASHSEED=0, or run one."
            )


def _share_start(asked: Sequence[Instance], rank: int, processes: int) -> int:
    """Returns where a process's share begins, without splitting the repeats of a request.

    Repeats are numbered by their order, so one process must ask all of them.
    """
    place = len(asked) * rank // processes
    while 0 < place < len(asked) and asked[place] is asked[place - 1]:
        place -= 1
    return place
