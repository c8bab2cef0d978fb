"""Sends many HTTP requests concurrently, and retries the ones that fail."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, TypeVar

from lm_eval.api.instance import Failure
from lm_eval.errors import ModelError
from lm_eval.models.served.limit import ConcurrencyLimit
from lm_eval.models.served.redaction import Redaction
from lm_eval.models.served.retry import (
    OVERLOAD,
    Abort,
    GiveUp,
    Retry,
    RetryPolicy,
    Verdict,
    judge,
)
from lm_eval.models.served.transport import (
    BrokenReplyError,
    Reply,
    TimedOutError,
    Transport,
    UnreachableError,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Seconds for which results are collected before they are passed on together.
BATCH_SECONDS = 0.05
#: Seconds to wait before a GET request is sent again.
GET_WAITS = (0.1, 0.5)
#: Statuses after which that is done: overload, or a gateway without a server behind it.
BUSY = OVERLOAD | {502, 504}
#: Seconds to wait for requests in flight after an interrupt.
DRAIN_SECONDS = 10.0
#: The maximum number of requests that wait for a retry before new ones are held back.
MAX_WAITING = 1000
#: The maximum number of results that wait to be taken before requests are held back.
MAX_RESULTS = 20_000


class BadReplyError(Exception):
    """A reply with a success status that lacks what it should contain; the request is retried."""


class RefusedError(Exception):
    """A reply with a success status that refuses the request for good, such as a content filter."""


#: Errors of reading a reply: it is not JSON (`ValueError`), or is built otherwise than expected.
UNUSABLE = (BadReplyError, ValueError, KeyError, IndexError, TypeError, AttributeError)


@dataclass(eq=False)
class Exchange:
    """One request to the server, and how its reply is read.

    Attributes:
        url: where it is sent.
        payload: returns the JSON body. Called each time the request is sent, since what the server
            accepts may have been learned in between.
        read: returns the result from the parsed reply. Raises `BadReplyError` or `RefusedError`.
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


Result = tuple[Exchange, Any]
"""An exchange, and what its `read` returned; or a `Failure` if it was given up."""


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
        """Starts to send `exchanges`; returns an iterable of lists of results."""
        return Stream(self, exchanges)

    def ask(self, exchange: Exchange) -> Any:
        """Sends one request and returns its result, or a `Failure`."""
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

        return self.redacted(run_in_thread(fetch))

    def redacted(self, reply: Reply) -> Reply:
        """Returns a reply with the secrets of this client replaced."""
        return self._redaction.reply(reply)

    def hidden(self, text: str) -> str:
        """Returns a message with the secrets of this client replaced."""
        return self._redaction.text(text)


class Stream:
    """Requests that are being sent. Iterating yields lists of results, in the order of arrival.

    Every exchange gets exactly one result, unless the stream ends with an error. Use it as a
    context manager: leaving it cancels the requests in flight.
    """

    def __init__(self, client: Client, exchanges: Iterable[Exchange]) -> None:
        self._client, self._policy = client, client.policy
        self._source: Iterator[Exchange] = iter(exchanges)
        self._exhausted = False
        self._open = 0  # exchanges that were taken from the source and have no result yet
        self._limit = ConcurrencyLimit(client.max_concurrent)
        self._waiting: list[tuple[float, int, Exchange]] = []  # a heap, by due time
        self._numbers = itertools.count()
        self._rng = random.Random()
        self._workers: set[asyncio.Task[None]] = set()
        self._draining = False
        self._in_flight = 0
        self._last_reply = time.monotonic()
        self._error: BaseException | None = None
        self._results: deque[Result] = deque()  # appended to in one thread, taken in another
        self._arrived = threading.Event()
        self._finished = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._main: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._run, name="lm_eval-http", daemon=True)
        self._thread.start()

    # -- the caller's side ---------------------------------------------------------------------

    def __iter__(self) -> Iterator[list[Result]]:
        while True:
            self._arrived.wait()
            # Results come in quick succession: take several at once.
            self._finished.wait(BATCH_SECONDS)
            self._arrived.clear()
            done = self._finished.is_set()  # before the results are taken, not after
            if results := self._take():
                yield results
            if done:
                break
        if self._error is not None:
            raise self._error

    def _take(self) -> list[Result]:
        return [self._results.popleft() for _ in range(len(self._results))]

    def drain(self, seconds: float = DRAIN_SECONDS) -> Iterator[list[Result]]:
        """Sends no further requests; yields the results of those in flight, for some seconds."""
        self._draining = True
        deadline = time.monotonic() + seconds
        while not self._finished.wait(BATCH_SECONDS) and time.monotonic() < deadline:
            if results := self._take():
                yield results
        if results := self._take():
            yield results

    @property
    def in_flight(self) -> int:
        """The number of requests that were sent and have no result yet."""
        return self._in_flight

    def close(self) -> None:
        """Cancels the requests in flight and ends the thread."""
        self._draining = True  # if the thread has not begun to send, it ends by itself
        loop, main = self._loop, self._main
        if not self._finished.is_set() and loop is not None and main is not None:
            with suppress(RuntimeError):  # the loop has just been closed
                loop.call_soon_threadsafe(main.cancel)
        self._thread.join(timeout=30)

    def __enter__(self) -> Stream:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -- the thread with the event loop ----------------------------------------------------------

    def _run(self) -> None:
        try:
            asyncio.run(self._send_all())
        except asyncio.CancelledError:
            pass
        except BaseException as error:  # raised to the caller by `__iter__`
            self._error = error
        finally:
            self._finished.set()
            self._arrived.set()

    async def _send_all(self) -> None:
        self._loop, self._main = asyncio.get_running_loop(), asyncio.current_task()
        self._idle = asyncio.Event()
        async with self._client.transport() as transport:
            try:
                self._add_workers(transport)
                await self._idle.wait()
                unfinished = self._open > 0 or not self._exhausted
                if unfinished and self._error is None and not self._draining:
                    raise RuntimeError("the client ended before all requests had a result")
            finally:
                for worker in self._workers:
                    worker.cancel()
                await asyncio.gather(*self._workers, return_exceptions=True)

    def _add_workers(self, transport: Transport) -> None:
        """Starts as many workers as requests may be in flight."""
        for _ in range(self._limit.limit - len(self._workers)):
            worker = asyncio.create_task(self._work(transport))
            self._workers.add(worker)
            worker.add_done_callback(self._worker_ended)

    def _worker_ended(self, worker: asyncio.Task[None]) -> None:
        if not worker.cancelled() and (error := worker.exception()) is not None:
            self._error = self._error or error
        if not self._workers or self._error is not None:
            self._idle.set()

    async def _work(self, transport: Transport) -> None:
        """Sends one request after the other, until none is left or too many are in flight.

        A request that waits for a retry when this worker ends is sent by another one: the worker
        whose request failed goes on until nothing waits.
        """
        try:
            while self._error is None and len(self._workers) <= self._limit.limit:
                exchange = self._next()
                if exchange is None:
                    if self._draining or not self._waiting:
                        return
                    due = self._waiting[0][0] - time.monotonic()
                    await asyncio.sleep(max(0.01, min(1.0, due)))
                    continue
                await self._send(transport, exchange)
                if self._waiting or not self._exhausted:
                    self._add_workers(transport)
                while len(self._results) > MAX_RESULTS and not self._draining:
                    await asyncio.sleep(BATCH_SECONDS)
        finally:
            # At once: others that count the workers in the same step must not all end, too.
            if (worker := asyncio.current_task()) is not None:
                self._workers.discard(worker)

    def _next(self) -> Exchange | None:
        """Returns the next request to send; None if there is none at this moment."""
        if self._draining:
            return None
        if self._waiting and self._waiting[0][0] <= time.monotonic():
            return heapq.heappop(self._waiting)[2]
        if self._exhausted or len(self._waiting) >= MAX_WAITING:
            return None
        exchange = next(self._source, None)
        self._exhausted = exchange is None
        self._open += exchange is not None
        return exchange

    async def _send(self, transport: Transport, exchange: Exchange) -> None:
        sent = time.monotonic()
        if exchange.first_sent is None:
            exchange.first_sent = sent
        self._in_flight += 1
        try:
            body = json.dumps(exchange.payload()).encode()
            found = await transport.post(exchange.url, body, fresh=exchange.attempts > 0)
            reply = self._client.redacted(found)
        except UnreachableError as error:
            self._connection_failed(exchange, error)
            return
        except TimedOutError as error:
            exchange.attempts += 1
            self._failed(exchange, Retry(str(error), overload=True), sent)
            return
        except BrokenReplyError as error:
            exchange.attempts += 1
            self._failed(exchange, Retry(str(error)), sent)
            return
        finally:
            self._in_flight -= 1
        self._last_reply = now = time.monotonic()
        if reply.ok:
            self._read(exchange, reply, sent, now)
        elif 400 <= reply.status < 500 and self._adapted(exchange, reply, body):
            self._wait(exchange, 0.0)
        else:
            verdict = judge(reply)
            exchange.attempts += not (isinstance(verdict, Retry) and verdict.overload)
            self._failed(exchange, verdict, sent)

    def _adapted(self, exchange: Exchange, reply: Reply, sent: bytes) -> bool:
        """Returns whether a refused request has changed, so that it is worth sending it again.

        That is so, too, if another request with the same fault was refused first.
        """
        if exchange.adapt is None:
            return False
        return exchange.adapt(reply) or json.dumps(exchange.payload()).encode() != sent

    def _read(self, exchange: Exchange, reply: Reply, sent: float, now: float) -> None:
        """Reads a reply with a success status, and passes its result on."""
        try:
            result = exchange.read(json.loads(reply.body))
        except RefusedError as error:
            result = Failure(self._client.hidden(str(error)))
        except UNUSABLE as error:
            exchange.attempts += 1
            reason = f"unusable reply ({type(error).__name__}: {error})"
            self._failed(exchange, Retry(reason), sent)
            return
        self._limit.replied(now)
        self._finish(exchange, result)

    def _failed(self, exchange: Exchange, verdict: Verdict, sent: float) -> None:
        """Retries a request, gives it up or ends the run, as `verdict` says."""
        now = time.monotonic()
        exchange.failures += 1
        if isinstance(verdict, Abort):
            raise ModelError(
                self._client.hidden(
                    f"the server refused a request: {exchange.url}: {verdict.reason}"
                )
            )
        if isinstance(verdict, Retry):
            if verdict.overload:
                self._limit.overloaded(sent, now)
            wait = self._policy.wait(exchange.failures, verdict.after, self._rng)
            reason = self._reason_to_give_up(exchange, verdict, wait, now)
            if reason is None:
                logger.debug("%s: retry in %.1f s", self._client.hidden(verdict.reason), wait)
                self._wait(exchange, wait)
                return
            verdict = GiveUp(reason)
        self._finish(exchange, Failure(self._client.hidden(verdict.reason)))

    def _reason_to_give_up(
        self, exchange: Exchange, verdict: Retry, wait: float, now: float
    ) -> str | None:
        """Returns why a request is not retried; None if it is."""
        if exchange.attempts >= self._policy.attempts:
            return f"{verdict.reason} ({exchange.attempts} attempts)"
        left = self._policy.deadline - (now - (exchange.first_sent or now))
        if verdict.after is not None and verdict.after > left:
            return (
                f"{verdict.reason} (the server asks to wait {verdict.after:.0f} s, longer than "
                f"the deadline of {self._policy.deadline:g} s)"
            )
        if wait > left:
            return f"{verdict.reason} (no answer within {self._policy.deadline:g} s)"
        return None

    def _connection_failed(self, exchange: Exchange, error: UnreachableError) -> None:
        """Retries a request that could not be sent; ends the run if the server stays away."""
        exchange.failures += 1
        silent = time.monotonic() - self._last_reply
        if silent >= self._policy.patience:
            raise ModelError(
                f"{exchange.url} cannot be reached ({error}). Check the address, start the server, "
                "and run the same command again."
            )
        if exchange.failures == 1:
            logger.debug("%s cannot be reached (%s); trying again.", exchange.url, error)
        self._wait(exchange, self._policy.wait(exchange.failures, None, self._rng))

    def _wait(self, exchange: Exchange, seconds: float) -> None:
        """Queues a request to be sent again after some seconds. It occupies no place meanwhile."""
        due = time.monotonic() + seconds
        heapq.heappush(self._waiting, (due, next(self._numbers), exchange))

    def _finish(self, exchange: Exchange, result: Any) -> None:
        self._open -= 1
        self._results.append((exchange, result))
        if not self._arrived.is_set():
            self._arrived.set()


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
