"""Rank and number of the processes started together by `accelerate launch` or `torchrun`."""

from __future__ import annotations

import os
import sys
from typing import Any

from lm_eval.errors import ConfigError


def launched_count() -> int:
    """Returns the number of processes (`WORLD_SIZE`); 1 if this process was started alone."""
    return _number("WORLD_SIZE", 1)


def launched_rank() -> int:
    """Returns the rank of this process; 0 if it was started alone, even if `RANK` is set."""
    return _number("RANK", 0) if launched_count() > 1 else 0


def _number(name: str, default: int) -> int:
    """Returns the value of an environment variable; raises `ConfigError` if it is no number."""
    given = os.environ.get(name)
    try:
        return int(given) if given else default
    except ValueError as error:
        raise ConfigError(
            f"the environment variable {name} is {given!r}, but must be a number. Launchers such "
            "as torchrun set it; unset it to run a single process."
        ) from error


def torch_distributed() -> Any:
    """Returns the module `torch.distributed` if it is initialized, else None."""
    found: Any = sys.modules.get("torch.distributed")
    return found if found is not None and found.is_initialized() else None


def from_first(value: Any) -> Any:
    """Returns the `value` of the first process in every process that `torch.distributed` connects.

    All of them must call it. A process that is not connected gets its own `value`.
    """
    connected = torch_distributed()
    if connected is None or connected.get_world_size() < 2:
        return value
    values = [value]
    connected.broadcast_object_list(values, src=0)
    return values[0]
