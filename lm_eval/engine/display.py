"""One line at the bottom of the terminal: what a run is doing, for how long, and how fast.

Imported only where there is a terminal. A thread redraws the line, so that the time moves while a
model computes; it runs as long as there is a line.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tqdm import tqdm

TICK = 0.5
"""Seconds between two drawings."""
STAGE_DELAY = 1.0
"""Seconds after which a stage is named."""
MESSAGE_TIME = 0.2
"""Seconds that a log message has to be written once the line has been cleared for it."""
ESTIMATE_DELAY = 1.0
"""Seconds after which a rate, and the time left, can be told from what is done."""

STAGE = "{desc}: {elapsed}"
BEGINNING = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
UNDER_WAY = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"


class _Bar(tqdm):  # type: ignore[type-arg]  # it iterates over nothing
    """A tqdm bar that leaves no monitoring thread behind, and is told when it began."""

    monitor_interval = 0

    def show(self, done: int, elapsed: float, layout: str) -> None:
        """Draws what is done after so many seconds."""
        self.n, self.bar_format = done, layout
        self.last_print_t = time.time()
        self.start_t = self.last_print_t - elapsed
        self.refresh(nolock=True)

    def draw_at_once(self) -> None:
        """Ends the delay that keeps tqdm from drawing by itself."""
        self.delay = 0.0

    def stay(self) -> None:
        """Leaves the bar on the terminal when it is closed."""
        self.leave = True


class Line:
    """What is being done. It can be drawn and cleared any number of times."""

    def __init__(
        self,
        desc: str,
        total: int | None = None,
        unit: str = "",
        tokens: Callable[[], int] | None = None,
    ) -> None:
        """A stage, or with a `total` a bar; `tokens` returns how many were generated so far."""
        self._desc, self._total, self._unit = desc, total, unit
        self._tokens, self._tokens_before = tokens, 0 if tokens is None else tokens()
        self._started = time.monotonic()
        self._done = 0
        self._bar: _Bar | None = None

    def update(self, n: int = 1) -> None:
        """Counts; the next drawing shows it."""
        self._done += n

    @property
    def is_due(self) -> bool:
        """Whether it is to be drawn: a bar from its beginning on, a stage that takes long."""
        return self._total is not None or time.monotonic() - self._started >= STAGE_DELAY

    def draw(self) -> None:
        elapsed = max(time.monotonic() - self._started, 1e-6)
        if self._bar is None:
            # A delay keeps tqdm from drawing before it is told when this began.
            self._bar = _Bar(
                desc=self._desc,
                total=self._total,
                dynamic_ncols=True,
                leave=False,
                delay=1.0,
            )
            if self._total is None and self._bar.pos:  # a bar of other code shows what is done
                self.clear()
                return
            self._bar.draw_at_once()
        bar, done = self._bar, self._done
        if self._total is None:
            # Filled up with spaces, which tqdm cuts: a bar of other code leaves its end there.
            layout = STAGE + " " * (bar.ncols or 0)
        else:
            estimable = done and (elapsed > ESTIMATE_DELAY or done >= self._total)
            layout = UNDER_WAY if estimable else BEGINNING
            if self._tokens is not None and (count := self._tokens() - self._tokens_before):
                bar.set_postfix_str(f"{count / elapsed:,.0f} tokens/s", refresh=False)
            elif estimable:
                bar.set_postfix_str(f"{done / elapsed:,.2f} {self._unit}/s", refresh=False)
        bar.show(done, elapsed, layout)

    def clear(self) -> None:
        """Takes the line off the terminal; it can be drawn again."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def finish(self) -> None:
        """Takes a stage off the terminal; leaves a bar there as it is now."""
        if self._total is not None:
            self.draw()
            if self._bar is not None:
                self._bar.stay()
        self.clear()


class _Ticker(threading.Thread):
    """Calls `tick` every half second until `end` is called."""

    def __init__(self, tick: Callable[[], None]) -> None:
        super().__init__(name="lm-eval progress", daemon=True)
        self._call = tick
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.wait(TICK):
            self._call()

    def end(self) -> None:
        self._ended.set()
        self.join()


class Display:
    """Draws the innermost of the lines that are due, and keeps it apart from log messages.

    All drawing is done under tqdm's own lock, which excludes other code's bars, too.
    """

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._thread: _Ticker | None = None
        self._handlers: list[logging.Handler] = []
        self._drawn_from = 0.0

    def open(self, line: Line) -> None:
        """Shows a line, as soon as it is due, in place of the one around it."""
        with _terminal_lock():
            self._lines.append(line)
            if self._thread is None:
                self._follow_handlers()
                self._thread = _Ticker(self._tick)
                self._thread.start()
            if line.is_due:
                self._draw()

    def close(self, line: Line) -> None:
        """Finishes a line; the next tick draws the one around it. The last ends the thread."""
        ended = None
        with _terminal_lock():
            others = [other for other in self._lines if other is not line]
            try:
                for other in others if line.is_due else ():
                    other.clear()
                line.finish()
            finally:
                self._lines = others
                if not others:
                    ended, self._thread = self._thread, None
                    self._leave_handlers()
        if ended is not None:
            ended.end()

    def _tick(self) -> None:
        with _terminal_lock():
            self._follow_handlers()
            if time.monotonic() >= self._drawn_from:
                self._draw()

    def _draw(self) -> None:
        due = [line for line in self._lines if line.is_due]
        for outer in due[:-1]:
            outer.clear()
        for innermost in due[-1:]:
            innermost.draw()

    def forget(self) -> None:
        """Drops all lines without drawing: they belong to the process that was forked."""
        self._lines, self._thread = [], None
        self._leave_handlers()

    # -- log messages ------------------------------------------------------------------------------

    def _follow_handlers(self) -> None:
        """Clears the line before each message of handlers that write to the terminal.

        Libraries such as transformers make theirs when they are imported, which may be while a
        line is shown.
        """
        for handler in _terminal_handlers():
            if handler not in self._handlers:
                handler.addFilter(self._make_room)
                self._handlers.append(handler)

    def _leave_handlers(self) -> None:
        while self._handlers:
            self._handlers.pop().removeFilter(self._make_room)

    def _make_room(self, record: Any) -> bool:
        with _terminal_lock():
            for line in self._lines:
                line.clear()
            self._drawn_from = time.monotonic() + MESSAGE_TIME
        return True


def _terminal_handlers() -> Iterator[logging.Handler]:
    """The handlers of all loggers that write to a terminal."""
    loggers = [logging.root, *list(logging.root.manager.loggerDict.values())]
    for logger in loggers:
        for handler in logger.handlers if isinstance(logger, logging.Logger) else ():
            if isinstance(handler, logging.StreamHandler) and _is_terminal(handler.stream):
                yield handler
    if logging.lastResort is not None:
        yield logging.lastResort


def _is_terminal(stream: Any) -> bool:
    try:
        return bool(stream.isatty())
    except (AttributeError, ValueError):  # no stream yet, or a closed one
        return False


def _terminal_lock() -> AbstractContextManager[Any]:
    """The lock that every tqdm bar is drawn under; a thread may take it twice."""
    lock: AbstractContextManager[Any] = tqdm.get_lock()  # type: ignore[no-untyped-call]
    return lock


def _forget_in_child() -> None:
    """In a forked process: the lock may be held by a thread that does not exist there."""
    tqdm.set_lock(threading.RLock())
    DISPLAY.forget()


DISPLAY = Display()
"""The one of this process, as it has one terminal."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_in_child)
