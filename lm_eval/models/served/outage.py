"""Logs when a server stops answering in the middle of a run, and when it answers again."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

logger = logging.getLogger(__name__)

#: Seconds between two checks whether the server is silent.
CHECK_SECONDS = 1.0
#: Seconds without an answer after which a warning is logged.
SILENT_SECONDS = 30.0
#: The same before the first answer, which may need longer: how long is not known yet.
FIRST_ANSWER_SECONDS = 120.0
#: A server is not called silent before this many times the duration of its slowest answer.
SLOWEST_FACTOR = 3.0


@dataclass(frozen=True)
class Waiting:
    """The requests without an answer.

    Attributes:
        url: where the oldest of them is sent.
        count: how many there are.
        since: when the oldest was first sent, in seconds of a monotonic clock.
        reason: why it failed last; "" if it has not failed.
    """

    url: str
    count: int
    since: float
    reason: str = ""


class OutageLog:
    """Logs one warning at the beginning of an outage, and one at its end.

    An outage begins when no connection can be made, or when nothing was answered for a long time.
    It ends with the next answer. All times are seconds of a monotonic clock.
    """

    def __init__(
        self, now: float, deadline: float, patience: float, hide: Callable[[str], str] = str
    ) -> None:
        """Takes the limits of a `RetryPolicy`, and a function that hides secrets in messages.

        `now` is the present time of the monotonic clock.
        """
        self._deadline, self._patience, self._hide = deadline, patience, hide
        self._answered = self._checked = now
        self._slowest: float | None = None
        self._began: float | None = None  # when the current outage began; None if there is none
        self._ended = float("-inf")  # when the last one ended

    def answered(self, url: str, sent: float, now: float) -> None:
        """Takes note of an answer at `now` to a request that was sent at `sent`."""
        if self._began is not None:
            logger.warning(
                "%s answers again, after %.0f s.", self._hide(url), max(1.0, now - self._began)
            )
            self._began, self._ended = None, now
        self._slowest = max(self._slowest or 0.0, now - sent)
        self._answered = now

    def unreachable(self, sent: float, last_reply: float, waiting: Waiting) -> None:
        """Logs that no connection could be made for a request that was sent at `sent`.

        The run ends if no reply of any kind arrives within `patience` after `last_reply`. Not
        logged if another request was answered meanwhile, or shortly after another outage: a server
        of which only some connections fail is no outage.
        """
        recent = sent - self._ended < SILENT_SECONDS
        if self._began is not None or self._answered >= sent or recent:
            return
        self._began = self._answered
        logger.warning(
            "%s cannot be reached (%s). %s waiting for it and will be sent again, until %s "
            "(deadline=%g). If it stays away, the run ends; the same command then continues it.",
            self._hide(waiting.url),
            self._hide(waiting.reason),
            _requests(waiting.count),
            _clock(last_reply + self._patience),
            self._patience,
        )

    def check(self, now: float, waiting: Waiting) -> None:
        """Logs that the server is silent, if it has not answered for a long time.

        To be called every `CHECK_SECONDS`. If it was not, the thread was busy and could read no
        reply; that time is not counted.
        """
        late, self._checked = now - self._checked - 2 * CHECK_SECONDS, now
        self._answered += max(0.0, late)
        silent = now - max(self._answered, waiting.since)
        if self._began is not None or silent < self._longest_silence():
            return
        self._began = now - silent
        logger.warning(
            "%s has not answered for %.0f s%s. %s waiting for it, the oldest until %s "
            "(deadline=%g). A request that has no answer by its deadline has failed.",
            self._hide(waiting.url),
            silent,
            f" ({self._hide(waiting.reason)})" if waiting.reason else "",
            _requests(waiting.count),
            _clock(waiting.since + self._deadline),
            self._deadline,
        )

    def _longest_silence(self) -> float:
        if self._slowest is None:
            return FIRST_ANSWER_SECONDS
        return max(SILENT_SECONDS, SLOWEST_FACTOR * self._slowest)


def _requests(count: int) -> str:
    return "1 request is" if count == 1 else f"{count} requests are"


def _clock(moment: float) -> str:
    """Returns a moment of the monotonic clock as the time of day; with the date if it is far."""
    left = moment - time.monotonic()
    shape = "%H:%M:%S" if left < 12 * 3600 else "%Y-%m-%d %H:%M"
    return time.strftime(shape, time.localtime(time.time() + left))
