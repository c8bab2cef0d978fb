"""Finds out what this machine allows, by running a program under each mechanism."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from lm_eval.sandbox.types import (
    LIMITS_ONLY,
    MECHANISMS,
    Isolation,
    IsolationError,
    Limits,
    mechanisms_of,
)
from lm_eval.sandbox.workers import Worker

_LIMITS = Limits().with_wall_seconds(20.0)


@functools.cache
def isolation() -> Isolation:
    """Returns the mechanisms that this machine allows; each was tried, once per process.

    Raises `IsolationError` if programs cannot be run even with limits alone.
    """
    ways = ((), *((name,) for name in MECHANISMS))
    with ThreadPoolExecutor(len(ways)) as pool:
        limits, *tried = pool.map(_try, range(len(ways)), ways)
    if isinstance(limits, IsolationError):
        raise limits
    found = dict(zip(MECHANISMS, tried, strict=True))
    missing = {name: str(why) for name, why in found.items() if isinstance(why, IsolationError)}
    active = tuple(name for name in MECHANISMS if name not in missing)
    return Isolation("+".join(active) or LIMITS_ONLY, active, missing, limits)


def _try(number: int, mechanisms: Sequence[str]) -> str | IsolationError:
    """Returns the user that programs run as under some mechanisms, or why they cannot be run."""
    try:
        worker = Worker(number, mechanisms, _LIMITS)
    except IsolationError as error:
        return error
    worker.close()
    return "unprivileged" if worker.drops_user else "same"


def require_isolation(level: str) -> Isolation:
    """Returns what `isolation()` does; raises `IsolationError` if it does not satisfy `level`."""
    found = isolation()
    if not found.satisfies(level):
        lacking = [name for name in MECHANISMS if name in mechanisms_of(level) - set(found.levels)]
        reasons = "; ".join(f"{name}: {found.missing[name]}" for name in lacking)
        raise IsolationError(
            f"This machine isolates programs by {found.name}, and {level} is required. {reasons}. "
            f"Ask for less ({found.name!r}), or run where the kernel allows it."
        )
    return found
