"""Bounds the work and the output of one rendering of a template.

A template of one line can loop a trillion times, double a text forty times or ask for a number of
a billion digits. Most templates can do none of that: `plain_templates.py` recognizes them, and they
are rendered without any checks. The others are rendered in the environment of
`guarded_environment.py`, which spends the `Budget` defined here.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

#: How many loop iterations and calls one rendering may make.
MOST_STEPS = 1_000_000
#: How many characters, and items of lists, one rendering may produce, intermediate ones included.
MOST_CHARACTERS = 20_000_000


class TooMuchWorkError(Exception):
    """Raised when rendering a template exceeds a limit; the message continues "the template …"."""


class Budget:
    """What one rendering may still do. `deadline` is a time of `time.monotonic`, or None."""

    def __init__(self, deadline: float | None = None) -> None:
        self._steps, self._characters, self._deadline = MOST_STEPS, MOST_CHARACTERS, deadline

    def step(self, characters: int = 0, steps: int = 1) -> None:
        """Counts a loop iteration or a call that produces so many characters.

        `steps` is its cost, compared with that of an empty iteration.
        """
        self._steps -= steps
        if self._steps < 0:
            raise TooMuchWorkError(f"loops or calls too often (about {MOST_STEPS} steps)")
        if self._deadline is not None:
            check_deadline(self._deadline)
        self.spend(characters)

    def spend(self, characters: int) -> None:
        """Counts characters, or items of a list, that are about to be produced."""
        self._characters -= characters
        if self._characters < 0:
            raise TooMuchWorkError(f"produces more than {MOST_CHARACTERS} characters")


def check_deadline(deadline: float) -> None:
    """Raises `TooMuchWorkError` if the time `deadline` has passed."""
    if time.monotonic() > deadline:
        raise TooMuchWorkError("takes too long")


_current: ContextVar[Budget | None] = ContextVar("template_budget", default=None)


@contextmanager
def spending(budget: Budget) -> Iterator[None]:
    """Context manager in which templates of guarded environments spend `budget`."""
    token = _current.set(budget)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def interrupted_after(seconds: float | None) -> Iterator[None]:
    """Context manager that raises `TooMuchWorkError` in its block after so many seconds.

    It also interrupts a single long operation, of which a budget learns nothing. Works only in the
    main thread of a process, and not on Windows; elsewhere, and for None, does nothing.
    """
    usable = hasattr(signal, "setitimer") and (
        threading.current_thread() is threading.main_thread()
    )
    if seconds is None or not usable:
        yield
        return

    def interrupt(number: int, frame: Any) -> None:
        raise TooMuchWorkError("takes too long")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def current_budget() -> Budget:
    """Returns the budget of the present rendering; a new one if there is none."""
    return _current.get() or Budget()
