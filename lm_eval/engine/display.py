"""The progress line at the bottom of the terminal: current stage, elapsed time and rate.

`progress.py` imports this module only if stderr is a terminal. A background thread redraws the
line, so that the elapsed time advances while the model computes. The thread runs only while there
is a line to draw.
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from tqdm import tqdm

from lm_eval.printable import printable_line

REDRAW_INTERVAL = 0.5
"""Seconds between two redraws of the line."""
STAGE_DELAY = 1.0
"""Seconds that a stage must last before it is drawn."""
MESSAGE_DELAY = 0.2
"""Seconds without redrawing after the line was cleared, so that a log message can be written."""
ESTIMATE_DELAY = 1.0
"""Seconds after which a bar shows the rate and the remaining time."""

STAGE_FORMAT = "{desc}: {elapsed}"
BAR_WITHOUT_ESTIMATE = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}{postfix}]"
BAR_WITH_ESTIMATE = "{l_bar}{bar}| {n_fmt}/{total_fmt} [{elapsed}<{remaining}{postfix}]"
RATE_WINDOW = 30.0
"""Seconds over which the rate of tokens is measured for the remaining time."""


class _Bar(tqdm):  # type: ignore[type-arg]  # iterates over nothing
    """A tqdm bar without tqdm's monitor thread, whose elapsed time is passed to `show`."""

    monitor_interval = 0

    def show(self, done: int, elapsed: float, layout: str) -> None:
        """Draws the bar with `done` units after `elapsed` seconds, in the tqdm format `layout`."""
        self.n, self.bar_format = done, layout
        self.last_print_t = time.time()
        self.start_t = self.last_print_t - elapsed
        self.refresh(nolock=True)

    def enable_drawing(self) -> None:
        """Ends the initial delay during which tqdm does not draw the bar."""
        self.delay = 0.0

    def keep_on_close(self) -> None:
        """Makes `close` leave the bar on the terminal."""
        self.leave = True


class TokenRate:
    """The number of tokens per second in the last `RATE_WINDOW` seconds."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque([(0.0, 0)])

    def add(self, elapsed: float, tokens: int) -> float:
        """Takes the number of tokens after `elapsed` seconds; returns the present rate."""
        self._seen.append((elapsed, tokens))
        while len(self._seen) > 2 and self._seen[1][0] <= elapsed - RATE_WINDOW:
            self._seen.popleft()
        start, before = self._seen[0]
        return (tokens - before) / max(elapsed - start, 1e-6)


def seconds_left(done: int, total: int, generated: int, rate: float) -> float:
    """Returns how many seconds the remaining answers will take, by the lengths seen so far.

    The expected length of an answer is the number of tokens generated, those of unfinished answers
    included, divided by the number of finished answers. The mean length of the finished ones alone
    would be too small: of answers that are generated at the same time, short ones end first.

    Args:
        done: the number of finished answers, at least 1.
        total: the number of all answers.
        generated: the tokens generated so far.
        rate: tokens per second; the result is infinite if it is 0.
    """
    left = (total - done) * generated / done
    if left == 0:
        return 0.0
    return left / rate if rate > 0 else math.inf


class Line:
    """A stage or progress bar of the run. It can be drawn and cleared any number of times."""

    def __init__(
        self,
        desc: str,
        total: int | None = None,
        unit: str = "",
        tokens: Callable[[], int] | None = None,
    ) -> None:
        """Creates a progress bar over `total` units, or with `total=None` a stage without a bar.

        Args:
            desc: the text at the beginning of the line.
            total: the number of units of a bar.
            unit: the plural name of a unit, for the rate ("requests").
            tokens: returns the number of tokens generated so far. If given, the bar shows tokens
                per second instead of units per second, once the number has increased, and
                estimates the remaining time from the lengths seen so far.
        """
        self._desc, self._total, self._unit = printable_line(desc), total, unit
        self._tokens, self._tokens_before = tokens, 0 if tokens is None else tokens()
        self._rate = TokenRate()
        self._started = time.monotonic()
        self._done = 0
        self._bar: _Bar | None = None

    def update(self, n: int = 1) -> None:
        """Adds `n` to the number of finished units. The next redraw shows it."""
        self._done += n

    @property
    def is_due(self) -> bool:
        """Whether to draw the line: a bar always, a stage after `STAGE_DELAY` seconds."""
        return self._total is not None or time.monotonic() - self._started >= STAGE_DELAY

    def draw(self) -> None:
        """Draws the line in its present state; a stage is not drawn next to a third-party bar."""
        elapsed = max(time.monotonic() - self._started, 1e-6)
        if self._bar is None:
            # The delay keeps tqdm from drawing before its start time is set.
            self._bar = _Bar(
                desc=self._desc,
                total=self._total,
                dynamic_ncols=True,
                leave=False,
                delay=1.0,
            )
            if self._total is None and self._bar.pos:  # a third-party bar is shown
                self.clear()
                return
            self._bar.enable_drawing()
        bar, done = self._bar, self._done
        if self._total is None:
            # Padded with spaces, which tqdm cuts to the width: overwrites what another bar left.
            layout = STAGE_FORMAT + " " * (bar.ncols or 0)
        else:
            estimable = done and (elapsed > ESTIMATE_DELAY or done >= self._total)
            layout = BAR_WITH_ESTIMATE if estimable else BAR_WITHOUT_ESTIMATE
            if self._tokens is not None and (count := self._tokens() - self._tokens_before):
                bar.set_postfix_str(f"{count / elapsed:,.0f} tokens/s", refresh=False)
                rate = self._rate.add(elapsed, count)
                if estimable:
                    left = seconds_left(done, self._total, count, rate)
                    shown = tqdm.format_interval(left) if math.isfinite(left) else "?"
                    layout = layout.replace("{remaining}", shown)
            elif estimable:
                bar.set_postfix_str(f"{done / elapsed:,.2f} {self._unit}/s", refresh=False)
        bar.show(done, elapsed, layout)

    def clear(self) -> None:
        """Removes the line from the terminal; `draw` can show it again."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def finish(self) -> None:
        """Ends the line: removes a stage from the terminal, leaves a bar in its final state."""
        if self._total is not None:
            self.draw()
            if self._bar is not None:
                self._bar.keep_on_close()
        self.clear()


class _RedrawThread(threading.Thread):
    """Calls `redraw` every `REDRAW_INTERVAL` seconds until `end` is called."""

    def __init__(self, redraw: Callable[[], None]) -> None:
        super().__init__(name="lm-eval progress", daemon=True)
        self._redraw = redraw
        self._ended = threading.Event()

    def run(self) -> None:
        """Calls `redraw` until `end` is called."""
        while not self._ended.wait(REDRAW_INTERVAL):
            self._redraw()

    def end(self) -> None:
        """Stops the thread and waits for it."""
        self._ended.set()
        self.join()


class Display:
    """Draws the innermost open line that is due, and clears it before each log message.

    Lines are nested: a bar that is opened during a stage replaces the stage until it is closed. All
    drawing holds tqdm's own lock, so that third-party tqdm bars do not draw at the same time.
    """

    def __init__(self) -> None:
        self._lines: list[Line] = []
        self._thread: _RedrawThread | None = None
        self._handlers: list[logging.Handler] = []
        self._redraw_after = 0.0

    def open(self, line: Line) -> None:
        """Opens a line, which replaces the enclosing line on the terminal as soon as it is due.

        Opening the first line also starts the redraw thread.
        """
        with _terminal_lock():
            self._lines.append(line)
            if self._thread is None:
                self._add_filters()
                self._thread = _RedrawThread(self._redraw)
                self._thread.start()
            if line.is_due:
                self._draw()

    def close(self, line: Line) -> None:
        """Finishes a line. The next redraw shows the enclosing line.

        Closing the last line also stops the redraw thread.
        """
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
                    self._remove_filters()
        if ended is not None:
            ended.end()

    def _redraw(self) -> None:
        with _terminal_lock():
            self._add_filters()
            if time.monotonic() >= self._redraw_after:
                self._draw()

    def _draw(self) -> None:
        due = [line for line in self._lines if line.is_due]
        for outer in due[:-1]:
            outer.clear()
        for innermost in due[-1:]:
            innermost.draw()

    def reset(self) -> None:
        """Drops all lines without drawing: in a forked child, they belong to the parent process."""
        self._lines, self._thread = [], None
        self._remove_filters()

    # -- log messages ------------------------------------------------------------------------------

    def _add_filters(self) -> None:
        """Makes every log handler that writes to a terminal clear the line before a message.

        Called at every redraw, because libraries such as transformers add handlers when they are
        imported, which may happen while a line is shown.
        """
        for handler in _terminal_handlers():
            if handler not in self._handlers:
                handler.addFilter(self._clear_for_message)
                self._handlers.append(handler)

    def _remove_filters(self) -> None:
        while self._handlers:
            self._handlers.pop().removeFilter(self._clear_for_message)

    def _clear_for_message(self, record: Any) -> bool:
        """Clears the line; a logging filter that lets every record pass (returns True)."""
        with _terminal_lock():
            for line in self._lines:
                line.clear()
            self._redraw_after = time.monotonic() + MESSAGE_DELAY
        return True


def _terminal_handlers() -> Iterator[logging.Handler]:
    """Yields the handlers of all loggers that write to a terminal, and then `logging.lastResort`.

    `lastResort` comes in any case, unless it is None. A handler of two loggers is yielded twice.
    """
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
    except (AttributeError, ValueError):  # no stream yet, or the stream is closed
        return False


def _terminal_lock() -> AbstractContextManager[Any]:
    """Returns the re-entrant lock that tqdm holds while it draws any bar."""
    lock: AbstractContextManager[Any] = tqdm.get_lock()  # type: ignore[no-untyped-call]
    return lock


def _reset_in_child() -> None:
    """Resets tqdm's lock and the display in a forked child process.

    The lock may be held by a thread that exists only in the parent.
    """
    tqdm.set_lock(threading.RLock())
    DISPLAY.reset()


DISPLAY = Display()
"""The display of this process."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
