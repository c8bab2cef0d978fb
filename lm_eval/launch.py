"""Processes that were started together, by `accelerate launch` or `torchrun`."""

from __future__ import annotations

import os
import sys
from typing import Any


def launched_count() -> int:
    """How many there are; 1 where this one is alone."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def launched_rank() -> int:
    """Which of them this is; 0 where it is alone, whatever a scheduler has set."""
    return int(os.environ.get("RANK") or 0) if launched_count() > 1 else 0


def connection() -> Any:
    """torch's module for processes that it has connected; None where it has connected none."""
    found: Any = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_initialized() else None
