"""Show on a terminal what a run is doing; stay silent in a pipe."""

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
    """Something that can be told how much more is done."""

    def update(self, n: int = 1) -> object: ...


class _Silent:
    def update(self, n: int = 1) -> None:
        return


@contextmanager
def progress(
    total: int,
    desc: str,
    unit: str = "request",
    disable: bool = False,
    tokens: Callable[[], int] | None = None,
) -> Iterator[Progress]:
    """Shows a progress bar over `total` units, drawn only where a person can see it.

    The elapsed time moves from the first second on; rate and time left are added once some units
    are done. `tokens` returns how many tokens were generated so far (`Usage.tokens_generated`):
    with it the bar shows tokens per second instead. It is called twice a second.
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
    """Names what is being done, with a moving elapsed time, once it has taken a second.

    Nothing of it stays on the terminal. A stage or bar that is opened inside takes its place until
    it ends. Also works as a decorator.
    """
    if not _is_visible():
        yield
        return
    from lm_eval.engine.display import Line

    with _shown(Line(desc)):
        yield


def _is_visible() -> bool:
    """Whether a person can see it and wants to; tqdm before 4.66 does not know the variable."""
    wanted = not os.environ.get("TQDM_DISABLE")
    return wanted and sys.stderr.isatty() and launched_rank() == 0


@contextmanager
def _shown(line: Line) -> Iterator[None]:
    from lm_eval.engine.display import DISPLAY

    try:
        DISPLAY.open(line)
        yield
    finally:
        DISPLAY.close(line)
