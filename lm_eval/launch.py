"""Rank and number of the processes started together by `accelerate launch` or `torchrun`."""

from __future__ import annotations

import os
import sys
from typing import Any


def launched_count() -> int:
    """Returns the number of processes (`WORLD_SIZE`); 1 if this process was started alone."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def launched_rank() -> int:
    """Returns the rank of this process; 0 if it was started alone, even if `RANK` is set."""
    return int(os.environ.get("RANK") or 0) if launched_count() > 1 else 0


def torch_distributed() -> Any:
    """Returns the module `torch.distributed` if it is initialized, else None."""
    found: Any = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_initialized() else None
