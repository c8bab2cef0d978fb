"""Which executor a run uses. A new executor is added here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval.engine.executor import Executor
from lm_eval.engine.in_process import InProcess, Lockstep
from lm_eval.engine.ranks import LaunchedRanks

if TYPE_CHECKING:
    from lm_eval.api.model import LM


def executor_for(lm: LM) -> Executor:
    """Returns the executor that a model asks for by its `world_size` and `lockstep`."""
    if getattr(lm, "world_size", 1) > 1:
        return LaunchedRanks(lm)
    if getattr(lm, "lockstep", False):
        return Lockstep(lm)
    return InProcess(lm)
