"""Sends many HTTP requests concurrently, and retries the ones that fail."""

from __future__ import annotations

import asyncio
import heapq
import itertools
import json
import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from types import TracebackType
from typing import Any

from lm_eval.api.instance import Failure
from lm_eval.errors import EvalError, ModelError
from lm_eval.models.served.exchange import UNUSABLE, Exchange, FollowUp, RefusedError, Result
from lm_eval.models.served.limit import ConcurrencyLimit
from lm_eval.models.served.outage import CHECK_SECONDS, OutageLog, Waiting
from lm_eval.models.served.retry import Abort, GiveUp, Retry, RetryPolicy, Verdict, judge
from lm_eval.models.served.transport import (
    BrokenReplyError,
    Reply,
    TimedOutError,
    Transport,
    UnreachableError,
)
from lm_eval.redaction import Redactor

logger = logging.getLogger(__name__)

#: Seconds for which results are collected before they are passed on together.
BATCH_SECONDS = 0.05
#: Seconds to wait for requests in flight after an interrupt.
DRAIN_SECONDS = 10.0
#: The maximum number of requests that wait for a retry before new ones are held back.
MAX_WAITING = 1000
#: The maximum number of results that wait to be taken before requests are held back.
MAX_RESULTS = 20_000


class Stream:
    """Requests that are being sent. Iterating yields lists of results, in the order of arrival.

    Every exchange gets exactly one result, unless the stream ends with an error. Use it as a
    context manager: leaving it cancels the requests in flight.
    """

    def __init__(
        self,
        transport: Callable[[], Transport],
        exchanges: Iterable[Exchange],
        policy: RetryPolicy,
        max_concurrent: int | None = None,
        redactor: Redactor | None = None,
    ) -> None:
        """Starts to send `exchanges`. The other arguments are those of `Client`."""
        self._make_transport, self._policy = transport, policy
        self._redactor = redactor or Redactor(())
        self._source: Iterator[Exchange] = iter(exchanges)
        self._exhausted = False
        self._open = 0  # exchanges that were taken from the source and have no result yet
        self._limit = ConcurrencyLimit(max_concurrent)
        self._waiting: list[tuple[float, int, Exchange]] = []  # a heap, by due time
        self._numbers = itertools.count()
        self._rng = random.Random()
        self._workers: set[asyncio.Task[None]] = set()
        self._draining = False
        self._sent: set[Exchange] = set()  # those in flight
        self._last_reply = time.monotonic()
        self._outage = OutageLog(
            self._last_reply, policy.deadline, policy.patience, self._redactor.text
        )
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
        return len(self._sent)

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
        async with self._make_transport() as transport:
            watch = asyncio.create_task(self._watch())
            try:
                self._add_workers(transport)
                await self._idle.wait()
                unfinished = self._open > 0 or not self._exhausted
                if unfinished and self._error is None and not self._draining:
                    raise RuntimeError("the client ended before all requests had a result")
            finally:
                for task in (watch, *self._workers):
                    task.cancel()
                await asyncio.gather(watch, *self._workers, return_exceptions=True)

    async def _watch(self) -> None:
        """Logs a warning when the server has been silent for a long time."""
        while not self._draining:
            await asyncio.sleep(CHECK_SECONDS)
            if self._sent or self._waiting:
                self._outage.check(time.monotonic(), self._unanswered())

    def _unanswered(self) -> Waiting:
        """Returns the requests that are in flight or wait to be sent again; there is at least one.

        To be called in the thread of the event loop.
        """
        open_now = [*self._sent, *(exchange for _, _, exchange in self._waiting)]
        oldest = min(open_now, key=lambda exchange: exchange.first_sent or math.inf)
        since = oldest.first_sent or time.monotonic()
        return Waiting(oldest.url, len(open_now), since, oldest.trouble)

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
        self._sent.add(exchange)
        try:
            body = _as_json(exchange)
            found = await transport.post(exchange.url, body, fresh=exchange.attempts > 0)
            reply = found.redacted(self._redactor)
        except UnreachableError as error:
            self._connection_failed(exchange, error, sent)
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
            self._sent.discard(exchange)
        self._last_reply = now = time.monotonic()
        if reply.ok:
            self._read(exchange, reply, sent, now)
        elif 400 <= reply.status < 500 and self._adapted(exchange, reply, body):
            self._outage.answered(exchange.url, sent, now)
            self._wait(exchange, 0.0)
        else:
            verdict = judge(reply)
            if not isinstance(verdict, Retry):
                self._outage.answered(exchange.url, sent, now)
            exchange.attempts += not (isinstance(verdict, Retry) and verdict.overload)
            self._failed(exchange, verdict, sent)

    def _adapted(self, exchange: Exchange, reply: Reply, sent: bytes) -> bool:
        """Returns whether a refused request has changed, so that it is worth sending it again.

        `sent` is the body that was refused. It has changed, too, if another request with the same
        fault was refused first.
        """
        if exchange.adapt is None:
            return False
        return exchange.adapt(reply) or _as_json(exchange) != sent

    def _read(self, exchange: Exchange, reply: Reply, sent: float, now: float) -> None:
        """Reads a reply with a success status, and passes its result on; retries an unusable one.

        `sent` and `now` are seconds of a monotonic clock.
        """
        try:
            result = exchange.read(json.loads(reply.body))
        except EvalError:  # ours; some are a ValueError or KeyError, too
            raise
        except RefusedError as error:
            result = Failure(self._redactor.text(str(error)))
        except UNUSABLE as error:
            exchange.attempts += 1
            reason = f"unusable reply ({type(error).__name__}: {error})"
            self._failed(exchange, Retry(reason), sent)
            return
        self._outage.answered(exchange.url, sent, now)
        self._limit.replied(now)
        if isinstance(result, FollowUp):
            exchange.follow(result)
            self._wait(exchange, 0.0)
            return
        self._finish(exchange, result)

    def _failed(self, exchange: Exchange, verdict: Verdict, sent: float) -> None:
        """Retries a request, gives it up, or ends the run with `ModelError`, as `verdict` says.

        `sent` is when it was sent, in seconds of a monotonic clock.
        """
        now = time.monotonic()
        exchange.failures += 1
        if isinstance(verdict, Abort):
            raise ModelError(
                self._redactor.text(
                    f"the server refused a request: {exchange.url}: {verdict.reason}"
                )
            )
        if isinstance(verdict, Retry):
            exchange.trouble = verdict.reason
            if verdict.overload:
                self._limit.overloaded(sent, now)
            wait = self._policy.wait(exchange.failures, verdict.after, self._rng)
            reason = self._reason_to_give_up(exchange, verdict, wait, now)
            if reason is None:
                logger.debug("%s: retry in %.1f s", self._redactor.text(verdict.reason), wait)
                self._wait(exchange, wait)
                return
            verdict = GiveUp(reason)
        self._finish(exchange, Failure(self._redactor.text(verdict.reason)))

    def _reason_to_give_up(
        self, exchange: Exchange, verdict: Retry, wait: float, now: float
    ) -> str | None:
        """Returns why a request is not retried; None if it is.

        It is not after too many attempts, or if its deadline is over before the next one. `wait` is
        how many seconds that would be from `now`.
        """
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

    def _connection_failed(self, exchange: Exchange, error: UnreachableError, sent: float) -> None:
        """Retries a request that could not be sent.

        Ends the run with `ModelError` if there was no reply for `RetryPolicy.patience` seconds.
        """
        exchange.failures += 1
        silent = time.monotonic() - self._last_reply
        if silent >= self._policy.patience:
            raise ModelError(
                f"{exchange.url} cannot be reached ({error}). Check the address, start the server, "
                "and run the same command again."
            )
        self._wait(exchange, self._policy.wait(exchange.failures, None, self._rng))
        exchange.trouble = str(error)
        waiting = replace(self._unanswered(), reason=exchange.trouble)
        self._outage.unreachable(sent, self._last_reply, waiting)

    def _wait(self, exchange: Exchange, seconds: float) -> None:
        """Queues a request to be sent again after some seconds. It occupies no place meanwhile."""
        due = time.monotonic() + seconds
        heapq.heappush(self._waiting, (due, next(self._numbers), exchange))

    def _finish(self, exchange: Exchange, result: Any) -> None:
        self._open -= 1
        self._results.append((exchange, result))
        if not self._arrived.is_set():
            self._arrived.set()


def _as_json(exchange: Exchange) -> bytes:
    """Returns the body of a request; raises `ModelError` if it contains what is not JSON data."""
    payload = exchange.payload()
    try:
        return json.dumps(payload).encode()
    except (TypeError, ValueError) as error:
        raise ModelError(
            f"the body of a request to {exchange.url} cannot be written as JSON: {error}. It is "
            "made from the generation settings of the task (generation_kwargs, --gen_kwargs), or "
            "by _create_payload of the model class."
        ) from error
