"""An OpenAI-shaped server in a thread, which fails in the ways that a test selects.

A `Plan` is called for every attempt of a task's prompt and returns a fault, or None to answer. The
requests of the probe are answered, and not counted, unless the server has `rules` for all requests.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from types import TracebackType
from typing import Any

from aiohttp import web

MODEL = "test-model"

#: The answer to a prompt without a question, such as those of the probe.
COUNTING = " five six seven. One two three four five six"


@dataclass(frozen=True)
class Attempt:
    """One request that reached the server.

    Attributes:
        prompt: the prompt as text; of a chat, the contents of its messages, one per line.
        number: how often this prompt has been asked, this time included.
        connection: the number of the connection that it came through, from 0.
        body: the whole request.
        headers: its HTTP headers.
    """

    prompt: str
    number: int
    connection: int
    body: Mapping[str, Any]
    headers: Mapping[str, str]


Fault = Callable[[web.Request], Awaitable[web.StreamResponse]]
Plan = Callable[[Attempt], "Fault | None"]
Rules = Callable[[Mapping[str, Any]], "Fault | None"]


# -- faults ------------------------------------------------------------------------------------


def status(code: int, message: str = "no", /, **headers: str) -> Fault:
    """Returns a fault that replies with an error; `_` in the names of headers stands for `-`."""
    error = {"message": message, "type": "error", "code": None}
    return reply_with(code, json.dumps({"error": error}), **headers)


def reply_with(code: int, text: str, kind: str = "application/json", /, **headers: str) -> Fault:
    """Returns a fault that replies with any status and any text."""

    async def fault(request: web.Request) -> web.StreamResponse:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.Response(status=code, text=text, content_type=kind, headers=named)

    return fault


def retry_after_date(seconds: float) -> dict[str, str]:
    """Returns the header `Retry-After` as a date so many seconds from now."""
    return {"Retry_After": formatdate(time.time() + seconds, usegmt=True)}


QUOTA = reply_with(
    429, json.dumps({"error": {"message": "You have no credit.", "code": "insufficient_quota"}})
)
TOO_LONG = reply_with(
    400,
    json.dumps(
        {
            "error": {
                "message": "This model's maximum context length is 256 tokens.",
                "param": "messages",
                "code": "context_length_exceeded",
            }
        }
    ),
)
FILTERED = reply_with(
    400, json.dumps({"error": {"message": "The content was filtered.", "code": "content_filter"}})
)
#: A success status with a body that ends in the middle.
HALF_JSON = reply_with(200, '{"choices": [{"te')
#: Successes that lack what a completion contains.
WRONG_CONTENTS = (
    reply_with(200, "<html>Welcome</html>", "text/html"),
    reply_with(200, '{"choices": []}'),
    reply_with(200, "[]"),
    reply_with(200, '{"choices": [{"index": 0, "text": 7, "message": {"content": 7}}]}'),
    reply_with(200, '{"error": {"message": "upstream failed"}}'),
)


async def reset(request: web.Request) -> web.StreamResponse:
    """Resets the connection without a reply."""
    _connection(request).setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def cut_off(request: web.Request) -> web.StreamResponse:
    """Announces a longer body than it sends, and closes the connection."""
    response = web.StreamResponse(headers={"Content-Length": "1000"})
    response.content_type = "application/json"
    await response.prepare(request)
    await response.write(b'{"choices": [{"te')
    assert request.transport is not None
    request.transport.close()
    return response


def stall(seconds: float) -> Fault:
    """Returns a fault that replies too late."""

    async def fault(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return web.Response(status=500)

    return fault


def echo_headers(code: int, before: str = "", **fields: Any) -> Fault:
    """Returns a fault whose message contains the headers of the request, after some text."""

    async def fault(request: web.Request) -> web.StreamResponse:
        # Custom headers first, so that they are not cut off with the end of a long message.
        named = sorted(request.headers.items(), key=lambda item: item[0] in ("Host", "Accept"))
        shown = "; ".join(f"{name}: {value}" for name, value in named)
        error = {"message": f"{before}refused with {shown}", **fields}
        return web.json_response({"error": error}, status=code)

    return fault


async def echo_in_answer(request: web.Request) -> web.StreamResponse:
    """Answers with the headers of the request as text."""
    text = json.dumps(dict(request.headers))
    choice = {"index": 0, "text": text, "message": {"content": text}, "finish_reason": "stop"}
    return web.json_response({"choices": [choice]})


def _connection(request: web.Request) -> socket.socket:
    assert request.transport is not None
    found: socket.socket = request.transport.get_extra_info("socket")
    return found


# -- plans -------------------------------------------------------------------------------------


def first_time(fault: Fault, times: int = 1) -> Plan:
    """Returns a plan in which every prompt fails the first times."""
    return lambda attempt: fault if attempt.number <= times else None


def prompts_with(pattern: str, fault: Fault) -> Plan:
    """Returns a plan in which the prompts that a regular expression matches always fail."""
    return lambda attempt: fault if re.search(pattern, attempt.prompt) else None


def at_random(share: float, *faults: Fault) -> Plan:
    """Returns a plan in which a share of all attempts fails, each in one of several ways."""

    def plan(attempt: Attempt) -> Fault | None:
        rng = random.Random(f"{attempt.prompt} {attempt.number}")
        return rng.choice(faults) if rng.random() < share else None

    return plan


def after(answers: int, fault: Fault) -> Plan:
    """Returns a plan in which all attempts fail after a number of them."""
    seen: set[str] = set()

    def plan(attempt: Attempt) -> Fault | None:
        if len(seen) >= answers:
            return fault
        seen.add(attempt.prompt)
        return None

    return plan


def one_worker_of_eight(fault: Fault) -> Plan:
    """Returns a plan in which every eighth connection leads to a worker that always fails."""
    return lambda attempt: fault if attempt.connection % 8 == 0 else None


# -- the server --------------------------------------------------------------------------------


@dataclass
class Counts:
    """How often each prompt of a task was asked and answered."""

    asked: Counter[str] = field(default_factory=Counter)
    answered: Counter[str] = field(default_factory=Counter)


class FaultyServer:
    """A server on the loopback interface, as a context manager.

    Attributes:
        plan: which attempts fail, and how. It may be replaced while the server runs.
        rules: given the body of any request, that of the probe included, returns a fault or None.
            Called with an empty body for the list of models, and with the path for unknown paths.
        delay: seconds that each answer takes.
        counts: what was asked since the last `forget`.
        attempts: the same as a list, in order.
        refused: how many requests the rules refused.
        seen: how many requests came in, those of the probe included.
        most_at_once: the largest number of requests that were in progress at the same time.
    """

    def __init__(
        self, plan: Plan | None = None, rules: Rules | None = None, delay: float = 0.0
    ) -> None:
        self.plan, self.rules, self.delay = plan, rules, delay
        self.port = 0
        self.seen = self.most_at_once = self._at_once = 0
        self._connections: dict[Any, int] = {}
        self.forget()

    def forget(self) -> None:
        """Sets the counts to zero."""
        self.counts = Counts()
        self.attempts: list[Attempt] = []
        self.refused = 0

    @property
    def url(self) -> str:
        """The root of the server."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Starts to listen; again on the same port after `stop`."""
        started = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, args=(started,), daemon=True)
        self._thread.start()
        assert started.wait(10)

    def stop(self) -> None:
        """Closes all connections and stops to listen."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        assert not self._thread.is_alive()

    def __enter__(self) -> FaultyServer:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def _serve(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen(started))
        self._loop.close()

    async def _listen(self, started: threading.Event) -> None:
        self._ended = asyncio.Event()
        app = web.Application()
        app.router.add_get("/v1/models", self._models)
        app.router.add_post("/v1/completions", self._answer)
        app.router.add_post("/v1/chat/completions", self._answer)
        app.router.add_route("*", "/{path:.*}", self._other)
        runner = web.AppRunner(
            app, access_log=None, shutdown_timeout=0.01, handler_cancellation=True
        )
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True)
        await site.start()
        assert site._server is not None
        self.port = site._server.sockets[0].getsockname()[1]  # type: ignore[attr-defined]
        started.set()
        await self._ended.wait()
        await runner.cleanup()

    async def _models(self, request: web.Request) -> web.StreamResponse:
        if self.rules is not None and (fault := self.rules({})) is not None:
            return await fault(request)
        return web.json_response({"data": [{"id": MODEL, "owned_by": "tests"}]})

    async def _other(self, request: web.Request) -> web.StreamResponse:
        fault = None if self.rules is None else self.rules({"path": request.path})
        return web.Response(status=404) if fault is None else await fault(request)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen += 1
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        try:
            return await self._reply(request)
        finally:
            self._at_once -= 1

    async def _reply(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if self.rules is not None and (fault := self.rules(body)) is not None:
            self.refused += 1
            return await fault(request)
        prompts = prompts_of(body)
        tasks = [prompt for prompt in prompts if is_of_task(prompt)]
        for prompt in tasks:
            self.counts.asked[prompt] += 1
        connection = self._connections.setdefault(request.transport, len(self._connections))
        attempts = [
            Attempt(p, self.counts.asked[p], connection, body, dict(request.headers)) for p in tasks
        ]
        self.attempts += attempts
        faults = [fault for a in attempts if self.plan is not None and (fault := self.plan(a))]
        if faults:
            return await faults[0](request)
        if self.delay and tasks:
            await asyncio.sleep(self.delay)
        response = web.json_response(completion(body, prompts))
        await response.prepare(request)
        await response.write_eof()
        for prompt in tasks:
            self.counts.answered[prompt] += 1
        return response


def prompts_of(body: Mapping[str, Any]) -> list[str]:
    """Returns the prompts of a request as text; token ids become numbers between spaces."""
    if "messages" in body:
        return ["\n".join(str(message["content"]) for message in body["messages"])]
    prompts = body["prompt"]
    several = isinstance(prompts, list) and prompts and not isinstance(prompts[0], int)
    each = prompts if several else [prompts]
    return [p if isinstance(p, str) else " ".join(map(str, p)) for p in each]


def is_of_task(prompt: str) -> bool:
    """Returns whether a prompt is one of the tests' tasks, not of the probe."""
    return "plus" in prompt or prompt.replace(" ", "").isdigit()


def answer_to(prompt: str) -> str:
    """Returns the right answer to the last "What is A plus B?" of a prompt."""
    questions = re.findall(r"(\d+) plus (\d+)", prompt)
    return f" {sum(map(int, questions[-1]))}" if questions else COUNTING


def completion(body: Mapping[str, Any], prompts: list[str]) -> dict[str, Any]:
    """Returns the reply to a request; with `echo`, log-probabilities derived from the tokens."""
    choices = []
    for prompt in prompts:
        for _ in range(body.get("n") or 1):
            text = answer_to(prompt)
            choice: dict[str, Any] = {"index": len(choices), "finish_reason": "stop"}
            if "messages" in body:
                choice["message"] = {"role": "assistant", "content": text}
            else:
                choice["text"] = text
            if body.get("echo"):
                choice["logprobs"] = _echo(prompt.split())
            choices.append(choice)
    usage = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}
    return {"id": "x", "model": body.get("model"), "choices": choices, "usage": usage}


def token_logprob(token: str) -> float:
    """Returns the log-probability that this server gives to a token, anywhere in a prompt."""
    return -1.0 - hashlib.sha256(token.encode()).digest()[0] / 256


def _echo(tokens: list[str]) -> dict[str, Any]:
    values = [None, *(token_logprob(token) for token in tokens[1:]), -0.5]
    top = [None, *({t: token_logprob(t), "best": -0.5} for t in tokens[1:]), {"new": -0.5}]
    return {"tokens": [*tokens, "new"], "token_logprobs": values, "top_logprobs": top}
