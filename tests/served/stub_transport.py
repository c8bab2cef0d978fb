"""A `Transport` without a network: a function of the test answers each request."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any

from lm_eval.models.served.client import Client
from lm_eval.models.served.exchange import Exchange, Result
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.served.transport import Reply

#: Retries within milliseconds.
QUICK = RetryPolicy(attempts=6, deadline=5.0, patience=5.0, base=0.01, longest=0.02)

URL = "http://127.0.0.1:1/v1/completions"


class StubTransport:
    """Calls `answer` with each body and the number of the attempt, from 1; counts requests.

    `answer` returns a `Reply` or the JSON data of a successful one, raises an error of `Transport`,
    or is a coroutine function that does so.
    """

    def __init__(self, answer: Callable[[Any, int], Any], counts: bool = True) -> None:
        """Takes the function; with `counts=False` the number of the attempt is always 0."""
        self._answer, self._counts = answer, counts
        self.sent: Counter[str] = Counter()
        self.at_once = self.most_at_once = 0
        self.opened = self.closed = 0

    async def __aenter__(self) -> StubTransport:
        self.opened += 1
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.closed += 1

    async def post(self, url: str, body: bytes, fresh: bool = False) -> Reply:
        prompt = json.loads(body)
        name = json.dumps(prompt) if self._counts else ""
        self.sent[name] += self._counts
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            found = self._answer(prompt, self.sent[name])
            if asyncio.iscoroutine(found):
                found = await found
        finally:
            self.at_once -= 1
        return found if isinstance(found, Reply) else Reply(200, json.dumps(found).encode())

    async def get(self, url: str) -> Reply:
        found: Reply = await self.post(url, b'"GET"')
        return found


def error(status: int, message: str = "no", **headers: str) -> Reply:
    """Returns a reply with an error status; `_` in the names of headers stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status, json.dumps({"error": {"message": message}}).encode(), named)


def exchanges(count: int, **settings: Any) -> Iterator[Exchange]:
    """Yields exchanges whose payloads, results and tags are the numbers from 0."""
    for number in range(count):
        yield Exchange(URL, lambda number=number: number, lambda reply: reply, number, **settings)


def client(stub: StubTransport, policy: RetryPolicy = QUICK, **settings: Any) -> Client:
    """Returns a client that sends its requests to a stub."""
    return Client(lambda: stub, policy, **settings)


def results_of(
    stub: StubTransport, sent: Iterable[Exchange], policy: RetryPolicy = QUICK, **settings: Any
) -> dict[Any, Any]:
    """Returns the result of every exchange by its tag; asserts that none has two."""
    found: list[Result] = []
    with client(stub, policy, **settings).stream(sent) as stream:
        for batch in stream:
            found += batch
    tags = [exchange.tag for exchange, _ in found]
    assert len(tags) == len(set(tags))
    return {exchange.tag: result for exchange, result in found}
