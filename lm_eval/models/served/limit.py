"""Decides how many requests are in flight at once, from the throughput and from overload."""

from __future__ import annotations

from dataclasses import dataclass

#: The number of requests in flight at the start.
START = 16
#: The maximum if the user gives none.
MAXIMUM = 512
#: A round lasts at least this many seconds, so that throughput can be compared.
MIN_ROUND_SECONDS = 0.1
#: A higher limit is kept if the throughput of a round is higher by this factor.
GROWTH = 1.05
#: Seconds between attempts to raise a limit at which throughput no longer grew, or which was just
#: below an overload.
RETRY_SECONDS = 15.0


@dataclass
class _Round:
    """Replies that were counted since the limit last changed."""

    started: float
    replies: int = 0


class ConcurrencyLimit:
    """The number of requests that may be in flight at once.

    It doubles while the throughput grows. When doubling does not help in two rounds, it returns to
    the smaller value and tries a slightly higher one from time to time. When the server is
    overloaded (status 429 or 503, or a timeout) it is halved, at most once for all requests that
    were in flight at that moment. It then grows in small steps to just below the value that was too
    much, and stays there for a while before it tries higher ones.

    Attributes:
        limit: the current value, between 1 and the maximum.
    """

    def __init__(self, maximum: int | None = None, start: int = START) -> None:
        """Starts with `start` requests; `maximum` is the user's limit, None for `MAXIMUM`."""
        self._maximum = max(1, maximum or MAXIMUM)
        self.limit = min(start, self._maximum)
        self._round: _Round | None = None
        self._fallback: int | None = None  # the limit before the current attempt to raise it
        self._best = 0.0  # the throughput at `_fallback`, in replies per second
        self._is_doubtful = False  # whether one round of that attempt showed no gain
        self._settled_at: float | None = None  # when growth stopped; None while it doubles
        self._was_overloaded = False
        self._too_much: int | None = None  # the limit at the last overload, until it is tried again
        self._halved_at = float("-inf")

    def replied(self, now: float) -> None:
        """Counts a reply at the time `now` (seconds of a monotonic clock); may raise the limit."""
        if self._round is None:
            self._round = _Round(now)
            return
        self._round.replies += 1
        seconds = now - self._round.started
        if self._round.replies < self.limit or seconds < MIN_ROUND_SECONDS:
            return
        self._finish_round(self._round.replies / seconds, now)
        self._round = _Round(now)

    def overloaded(self, sent: float, now: float) -> None:
        """Halves the limit because a request that was sent at `sent` was refused or timed out.

        Requests that were sent before the last halving tell nothing new, and change nothing.
        """
        if sent < self._halved_at:
            return
        self._too_much = self.limit
        self.limit = max(1, self.limit // 2)
        self._halved_at, self._was_overloaded = now, True
        self._fallback, self._best, self._settled_at = None, 0.0, None
        self._round = _Round(now)

    def _finish_round(self, throughput: float, now: float) -> None:
        if self._too_much is not None:
            self._return_to(max(1, self._too_much - 1), now)
            return
        if self._fallback is not None and throughput < self._best * GROWTH:
            if not self._is_doubtful:
                # One round proves little: the machine may have been busy for a moment, and some of
                # the replies are to requests that were sent before the increase.
                self._is_doubtful = True
                return
            # The last increase did not help: return to the value before it.
            self.limit, self._fallback, self._settled_at = self._fallback, None, now
            return
        if self._settled_at is not None and now - self._settled_at < RETRY_SECONDS:
            return
        higher = min(self._maximum, self._next_limit())
        if higher > self.limit:
            self._fallback, self._best, self._is_doubtful = self.limit, throughput, False
            self.limit = higher
        else:
            self._fallback = None

    def _return_to(self, highest: int, now: float) -> None:
        """Raises the limit by one step up to `highest`, without asking whether throughput grew.

        At `highest`, forgets after `RETRY_SECONDS` which limit was too much.
        """
        if self.limit < highest:
            self.limit = min(highest, self._next_limit())
        elif now - self._halved_at >= RETRY_SECONDS:
            self._too_much = None

    def _next_limit(self) -> int:
        if self._settled_at is not None:
            return self.limit + max(1, self.limit // 4)
        if self._was_overloaded:
            return self.limit + max(1, self.limit // 8)
        return self.limit * 2
