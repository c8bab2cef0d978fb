"""Selects the executor of a run. A new executor class is added to `executor_for`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval.engine.executor import Executor
from lm_eval.engine.in_process import InProcess, Lockstep
from lm_eval.engine.ranks import LaunchedRanks
from lm_eval.engine.workers.remote_model import RemoteLM

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.config.run import RunConfig


def executor_for(run: RunConfig, lm: LM) -> Executor:
    """Returns the executor that runs `lm`, chosen by the model's attributes.

    `WorkersExecutor` for a model that workers hold (`RemoteLM`), `LaunchedRanks` if `lm.world_size`
    is above 1 (data parallel processes), `Lockstep` if `lm.lockstep` is true (one model split over
    processes), otherwise `InProcess`. `run` is not used: its setting `executor` takes effect
    earlier, in what `create_model` returns.
    """
    if isinstance(lm, RemoteLM):
        return lm.executor
    if getattr(lm, "world_size", 1) > 1:
        return LaunchedRanks(lm)
    if getattr(lm, "lockstep", False):
        return Lockstep(lm)
    return InProcess(lm)
