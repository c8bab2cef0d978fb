"""Processes that were started together, by `accelerate launch` or `torchrun`."""

from __future__ import annotations

import os


def launched_count() -> int:
    """How many there are; 1 where this one is alone."""
    return int(os.environ.get("WORLD_SIZE") or 1)


def launched_rank() -> int:
    """Which of them this is; 0 where it is alone, whatever a scheduler has set."""
    return int(os.environ.get("RANK") or 0) if launched_count() > 1 else 0
