"""Finds out what this machine allows, by running a program under each mechanism."""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor

from lm_eval.sandbox.types import (
    LIMITS_ONLY,
    MECHANISMS,
    Isolation,
    IsolationError,
    Limits,
    mechanisms_of,
)
from lm_eval.sandbox.workers import SupervisorDiedError, Worker

_PROGRAM, _TESTS = "def answer():\n    return 42\n", "assert answer() == 42\n"
_LIMITS = Limits().with_wall_seconds(20.0)


@functools.cache
def isolation() -> Isolation:
    """Returns the mechanisms that this machine allows; each was tried, once per process."""
    with ThreadPoolExecutor(len(MECHANISMS)) as pool:
        tried = dict(pool.map(_try, range(len(MECHANISMS)), MECHANISMS))
    active = tuple(name for name in MECHANISMS if tried[name][0])
    user = "unprivileged" if any(dropped for _, dropped, _ in tried.values()) else "same"
    missing = {name: why for name, (works, _, why) in tried.items() if not works}
    return Isolation("+".join(active) or LIMITS_ONLY, active, missing, user)


def _try(number: int, mechanism: str) -> tuple[str, tuple[bool, bool, str]]:
    """Returns a mechanism, whether it works, whether it changes the user, and why it fails."""
    try:
        worker = Worker(number, [mechanism], _LIMITS)
    except IsolationError as error:
        return mechanism, (False, False, str(error))
    try:
        verdict = worker.judge(_PROGRAM, _TESTS)
    except SupervisorDiedError as error:
        return mechanism, (False, False, str(error))
    finally:
        worker.close()
    return mechanism, (verdict.passed, worker.drops_user, verdict.detail)


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
