"""Which executor a run uses. A new executor is added here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval.engine.executor import Executor
from lm_eval.engine.in_process import InProcess, Lockstep
from lm_eval.engine.ranks import LaunchedRanks

if TYPE_CHECKING:
    from lm_eval.api.model import LM
    from lm_eval.config.run import RunConfig


def executor_for(run: RunConfig, lm: LM) -> Executor:
    """Returns the executor of a run: what its settings say, else what the model asks for.

    A model asks by its `world_size` and `lockstep`. No setting names an executor yet.
    """
    if getattr(lm, "world_size", 1) > 1:
        return LaunchedRanks(lm)
    if getattr(lm, "lockstep", False):
        return Lockstep(lm)
    return InProcess(lm)
