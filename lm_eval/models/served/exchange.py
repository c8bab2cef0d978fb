"""`Exchange`: one request to a server, and how its reply is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lm_eval.models.served.transport import Reply


class BadReplyError(Exception):
    """A reply with a success status that lacks what it should contain; the request is retried."""


class RefusedError(Exception):
    """A reply with a success status that refuses the request for good, such as a content filter."""


#: Errors of reading a reply: it is not JSON (`ValueError`), or is built otherwise than expected.
UNUSABLE = (BadReplyError, ValueError, KeyError, IndexError, TypeError, AttributeError)


@dataclass(frozen=True)
class FollowUp:
    """What `Exchange.read` returns to send another request before there is a result.

    `payload` and `read` take the place of those of the exchange.
    """

    payload: Callable[[], Any]
    read: Callable[[Any], Any]


@dataclass(eq=False)
class Exchange:
    """One request to the server, and how its reply is read.

    Attributes:
        url: where it is sent.
        payload: returns the JSON body. Called each time the request is sent, since what the server
            accepts may have been learned in between.
        read: returns the result from the parsed reply, or a `FollowUp`. Raises `BadReplyError` or
            `RefusedError`.
        tag: identifies the request for the caller.
        adapt: called with a reply that refuses the request (status 4xx). Returns True if the
            request was changed, so that it is worth sending it again at once.
    """

    url: str
    payload: Callable[[], Any]
    read: Callable[[Any], Any]
    tag: Any = None
    adapt: Callable[[Reply], bool] | None = None

    attempts: int = field(default=0, init=False)
    failures: int = field(default=0, init=False)
    first_sent: float | None = field(default=None, init=False)
    trouble: str = field(default="", init=False)  # why it failed last

    def follow(self, following: FollowUp) -> None:
        """Becomes the request that `following` describes, as if nothing had been sent yet."""
        self.payload, self.read = following.payload, following.read
        self.attempts, self.failures, self.first_sent, self.trouble = 0, 0, None, ""


Result = tuple[Exchange, Any]
"""An exchange, and what its `read` returned; or a `Failure` if it was given up."""
