"""Decides what to do about a request that got no usable reply: retry, give up, or end the run."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from lm_eval.models.served.transport import Reply

#: Statuses that mean that the server has too much to do. 529 is Anthropic's.
OVERLOAD = {429, 503, 529}
#: Statuses after which the same request may succeed.
TRANSIENT = {408, 409, 425, 500, 502, 504, 520, 521, 522, 523, 524, *OVERLOAD}
#: Statuses that name another address.
REDIRECT = {301, 302, 303, 307, 308}
#: Statuses after which no request of the run can succeed.
FATAL = {401, 402, 403, 404, 405, 407}


@dataclass(frozen=True)
class Retry:
    """Send the request again; `after` is the number of seconds that the server asked to wait."""

    reason: str
    after: float | None = None
    overload: bool = False


@dataclass(frozen=True)
class GiveUp:
    """The request fails for good; the run goes on without it."""

    reason: str


@dataclass(frozen=True)
class Abort:
    """The run ends: no request can succeed."""

    reason: str


Verdict = Retry | GiveUp | Abort


@dataclass(frozen=True)
class RetryPolicy:
    """How often and how long a request is retried.

    Attributes:
        attempts: how often a request is sent at most, if it fails with an error of the server or an
            unusable reply. Requests that an overloaded server refuses, and failed connections, are
            not counted.
        deadline: seconds after which a request that was sent at least once is given up.
        patience: seconds after which the run ends if no connection to the server can be made.
        base: the longest wait before the first retry, in seconds; it doubles with each retry.
        longest: the longest wait, unless the server asks for a longer one.
    """

    attempts: int = 6
    deadline: float = 600.0
    patience: float = 600.0
    base: float = 1.0
    longest: float = 30.0

    def wait(self, failures: int, after: float | None, rng: random.Random) -> float:
        """Returns the seconds to wait after `failures` failures of one request.

        The wait is random between half of an exponentially growing time and that time, so that
        requests which failed together do not come back together. `after`, the time that the server
        asked for, is the minimum.
        """
        longest = min(self.longest, self.base * 2.0 ** min(failures - 1, 20))
        wait = longest * (0.5 + 0.5 * rng.random())
        return wait if after is None else after + 0.1 * wait


def judge(reply: Reply) -> Verdict:
    """Returns what to do about a reply whose status is not a success."""
    reason = f"status {reply.status}: {error_message(reply)}"
    if reply.status in TRANSIENT and not _is_quota(reply):
        return Retry(reason, retry_after(reply.headers), reply.status in OVERLOAD)
    if reply.status in REDIRECT:
        target = reply.headers.get("Location", "an address that it does not name")
        return Abort(f"status {reply.status}: it redirects to {target}; pass that as base_url")
    if reply.status in FATAL or _is_quota(reply):
        return Abort(reason)
    if reply.status >= 500:
        return Retry(reason)
    return GiveUp(reason)


def error_message(reply: Reply) -> str:
    """Returns the message in the body of an error, in any of the usual places; else the body."""
    return _message(parsed_body(reply)) or reply.text() or "no message"


def parsed_body(reply: Reply) -> Any:
    """Returns the body as JSON data; None if it is not JSON."""
    try:
        return json.loads(reply.body)
    except ValueError:
        return None


def _message(body: Any) -> str:
    for name in ("error", "message", "detail", "error_description"):
        found = body.get(name) if isinstance(body, Mapping) else None
        if isinstance(found, Mapping):
            found = _message(found)
        if isinstance(found, str) and found:
            return " ".join(found.split())[:300]
    return ""


def _is_quota(reply: Reply) -> bool:
    """Returns whether a 429 says that the account has no credit left, which waiting cannot mend."""
    return reply.status == 429 and b"insufficient_quota" in reply.body


def retry_after(headers: Mapping[str, str], now: float | None = None) -> float | None:
    """Returns the seconds that the server asks to wait; None if it does not say.

    Reads `retry-after-ms`, and `Retry-After` as a number of seconds or a date.
    """
    try:
        if (given := headers.get("retry-after-ms")) is not None:
            return max(0.0, float(given) / 1000)
        if (given := headers.get("Retry-After") or headers.get("retry-after")) is None:
            return None
        if given.strip().replace(".", "", 1).isdigit():
            return float(given)
        moment = parsedate_to_datetime(given).timestamp()
        return max(0.0, moment - (time.time() if now is None else now))
    except (TypeError, ValueError, OverflowError):
        return None
