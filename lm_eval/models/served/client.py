"""Sends HTTP requests to one server: many of them, one, or a GET request."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from lm_eval.models.served.exchange import Exchange
from lm_eval.models.served.redaction import Redaction
from lm_eval.models.served.retry import OVERLOAD, RetryPolicy
from lm_eval.models.served.stream import Stream
from lm_eval.models.served.transport import BrokenReplyError, Reply, Transport

#: Seconds to wait before a GET request is sent again.
GET_WAITS = (0.1, 0.5)
#: Statuses after which that is done: overload, or a gateway without a server behind it.
BUSY = OVERLOAD | {502, 504}


class Client:
    """Sends requests to one server.

    The requests of `stream` are sent by an event loop in a thread of its own, as many at once as
    `ConcurrencyLimit` allows. Memory does not grow with the number of requests.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        policy: RetryPolicy | None = None,
        max_concurrent: int | None = None,
        hide: Iterable[str] = (),
    ) -> None:
        """Prepares a client; connects to nothing.

        Args:
            transport: creates the transport; called once per `stream`.
            policy: when to retry and when to give up.
            max_concurrent: the maximum number of requests in flight; None if it is found by trying.
            hide: secrets that are replaced by `***` in replies and messages.
        """
        self.transport = transport
        self.policy = policy or RetryPolicy()
        self.max_concurrent = max_concurrent
        self._redaction = Redaction(hide)

    def stream(self, exchanges: Iterable[Exchange]) -> Stream:
        """Starts to send `exchanges`; iterating over the result yields lists of `Result`.

        Each is a pair of an exchange and what its `read` returned, or a `Failure`, in the order of
        arrival.
        """
        return Stream(self.transport, exchanges, self.policy, self.max_concurrent, self._redaction)

    def ask(self, exchange: Exchange) -> Any:
        """Sends one request; returns what its `read` returned, or a `Failure` if it was given up.

        Raises `ModelError` if the server cannot be reached, or refuses all requests (status 401).
        """
        with self.stream([exchange]) as stream:
            return next(result for batch in stream for _, result in batch)

    def get(self, url: str) -> Reply:
        """Returns the reply to a single GET request, after up to two retries within a second.

        Raises the errors of `Transport`.
        """

        async def fetch() -> Reply:
            async with self.transport() as transport:
                for wait in GET_WAITS:
                    with suppress(BrokenReplyError):
                        reply = await transport.get(url)
                        if reply.status not in BUSY:
                            return reply
                    await asyncio.sleep(wait)
                return await transport.get(url)

        reply: Reply = run_in_thread(fetch)
        return self._redaction.reply(reply)


def run_in_thread(work: Callable[[], Any]) -> Any:
    """Returns the result of a coroutine function, run by an event loop in another thread.

    A thread of its own, because this one may already run a loop (in a notebook).
    """
    outcome: list[Any] = [None, None]

    def run() -> None:
        try:
            outcome[0] = asyncio.run(work())
        except BaseException as error:  # raised below, in the caller's thread
            outcome[1] = error

    thread = threading.Thread(target=run, name="lm_eval-http", daemon=True)
    thread.start()
    thread.join()
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]
