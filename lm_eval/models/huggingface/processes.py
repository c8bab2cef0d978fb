"""Several processes of one evaluation, as `accelerate launch` starts them."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from lm_eval.launch import launched_count


def accelerator() -> Any:
    """accelerate's view of the processes started together; None where this one is alone."""
    if launched_count() == 1:
        return None
    from accelerate import Accelerator, InitProcessGroupKwargs

    # One process may work for hours longer than another; waiting for it is no fault.
    patience = InitProcessGroupKwargs(timeout=timedelta(weeks=52))
    return Accelerator(kwargs_handlers=[patience])
