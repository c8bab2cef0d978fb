"""Progress bars and stage names on a terminal; nothing is shown if stderr is not a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from lm_eval.launch import launched_rank

if TYPE_CHECKING:
    from lm_eval.engine.display import Line


class Progress(Protocol):
    """What `progress` yields: an object whose `update` counts finished units."""

    def update(self, n: int = 1) -> object:
        """Adds `n` to the number of finished units."""


class _Silent:
    """A `Progress` that shows nothing."""

    def update(self, n: int = 1) -> None:
        """Does nothing."""
        return


@contextmanager
def progress(
    total: int,
    desc: str,
    unit: str = "request",
    disable: bool = False,
    tokens: Callable[[], int] | None = None,
) -> Iterator[Progress]:
    """Shows a progress bar while the `with` block runs; yields the object to count units with.

    Nothing is drawn if `total` is 0, if stderr is not a terminal, in processes other than rank 0,
    or with the environment variable `TQDM_DISABLE`; `update` of the yielded object then does
    nothing. The elapsed time is redrawn twice a second; the rate and the remaining time appear once
    some units are done.

    Args:
        total: the number of units.
        desc: the text in front of the bar.
        unit: the singular name of a unit, for the rate.
        disable: if True, nothing is drawn.
        tokens: returns the number of tokens generated so far (`Usage.tokens_generated`). If given,
            the bar shows tokens per second instead of units per second, once the number has
            increased, and estimates the remaining time from the lengths of answers.
    """
    if disable or total == 0 or not _is_visible():
        yield _Silent()
        return
    from lm_eval.engine.display import Line

    line = Line(desc, total, f"{unit}s", tokens)
    with _shown(line):
        yield line


@contextmanager
def stage(desc: str) -> Iterator[None]:
    """Shows `desc` and the elapsed time on the terminal while the `with` block runs.

    The line appears after one second and is removed at the end. A stage or bar that is opened
    inside the block replaces it until that one ends. Nothing is shown if stderr is not a terminal,
    in processes other than rank 0, or with the environment variable `TQDM_DISABLE`. Also works as a
    decorator.
    """
    if not _is_visible():
        yield
        return
    from lm_eval.engine.display import Line

    with _shown(Line(desc)):
        yield


def _is_visible() -> bool:
    """Returns whether this process draws: stderr is a terminal, rank 0, `TQDM_DISABLE` not set."""
    wanted = not os.environ.get("TQDM_DISABLE")  # tqdm before 4.66 ignores this variable
    return wanted and sys.stderr.isatty() and launched_rank() == 0


@contextmanager
def _shown(line: Line) -> Iterator[None]:
    from lm_eval.engine.display import DISPLAY

    try:
        DISPLAY.open(line)
        yield
    finally:
        DISPLAY.close(line)
