"""The processes of one evaluation that `accelerate launch` has started."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lm_eval.launch import launched_count


def create_accelerator() -> Any:
    """Returns the `Accelerator` that connects the launched processes; None for a single process."""
    if launched_count() == 1:
        return None
    from accelerate import Accelerator, InitProcessGroupKwargs

    # One process may work hours longer than another; waiting for it must not time out.
    timeout = InitProcessGroupKwargs(timeout=timedelta(weeks=52))
    return Accelerator(kwargs_handlers=[timeout])
