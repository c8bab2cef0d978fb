"""A server of the embedded model on the loopback interface, in a thread of the test.

The model is real, so that log-probabilities are right; what differs from server to server is how
they are asked for and returned. That is in `fake_dialects.py`.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np
from aiohttp import web
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lm_eval.engine.plan import SortedSequences, plan
from lm_eval.engine.threads import numpy_on_one_thread
from lm_eval.models.demo.llama import Llama, log_softmax
from lm_eval.models.demo.model import END_OF_TEXT, WEIGHTS

Floats = NDArray[np.float32]

START_SECONDS = 30


@dataclass(frozen=True)
class Generated:
    """An answer of the model.

    Attributes:
        tokens: all generated tokens, those of a stop string included, the end-of-text token not.
        text: their text up to the stop string.
        whole: their text.
        finish: "stop" or "length".
        stop: the stop string that ended the answer; None if none did.
        ended: whether the end-of-text token was generated, which ended the answer.
    """

    tokens: list[int]
    text: str
    whole: str
    finish: str
    stop: str | None = None
    ended: bool = False


class FakeModel:
    """The embedded model, computed without any of the tricks of `DemoLM`.

    `noise` is the size of random changes of its weights, relative to them: a model with other
    weights and the same tokenizer.
    """

    def __init__(self, noise: float = 0.0) -> None:
        self.llama = Llama(WEIGHTS)
        self.tokenizer = Tokenizer.from_file(str(WEIGHTS / "tokenizer.json"))
        self.end = int(self.tokenizer.token_to_id(END_OF_TEXT))
        self.vocabulary = int(self.tokenizer.get_vocab_size())
        self.texts = [self.decode([token], special=True) for token in range(self.vocabulary)]
        self._rows: dict[tuple[int, ...], Floats] = {}
        rng = np.random.default_rng(1)
        for layer in self.llama.layers if noise else ():
            for matrix in (layer.qkv, layer.out, layer.gate_up, layer.down):
                matrix += noise * matrix.std() * rng.standard_normal(matrix.shape, np.float32)

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text; the end-of-text token is recognized, none is added."""
        return list(self.tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """Returns the text of tokens; that of the end-of-text token only if `special`."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=not special))

    def after(self, tokens: Sequence[int]) -> Floats:
        """Returns the log-probabilities of the next token after each token, one row per token."""
        key = tuple(tokens)
        if key not in self._rows:
            (batch,) = plan(SortedSequences.of([list(tokens)], [1]), max_requests=1)
            hidden, _ = self.llama.read(batch)
            self._rows[key] = log_softmax(self.llama.logits(hidden))
        return self._rows[key]

    def next(self, tokens: Sequence[int]) -> Floats:
        """Returns the log-probabilities of the token after `tokens`."""
        row: Floats = self.after(tokens)[-1]
        return row

    def generate(
        self,
        prompt: Sequence[int],
        max_tokens: int,
        temperature: float = 0.0,
        seed: int | None = None,
        stops: Sequence[str] = (),
        favored: int | None = None,
    ) -> Generated:
        """Returns an answer to a prompt. Without a seed, sampled answers are not repeatable.

        `favored` is a token that is generated whatever its probability.
        """
        rng = np.random.default_rng(seed)
        found: list[int] = []
        while len(found) < max_tokens:
            row = self.next([*prompt, *found]).astype(np.float64)
            if temperature > 0:
                weights = np.exp((row - row.max()) / temperature)
                token = int(rng.choice(len(row), p=weights / weights.sum()))
            else:
                token = int(row.argmax()) if favored is None else favored
            if token == self.end:
                text = self.decode(found)
                return Generated(found, text, text, "stop", ended=True)
            found.append(token)
            text = self.decode(found)
            places = {stop: text.find(stop) for stop in stops if stop in text}
            if places:
                stop = min(places, key=lambda one: places[one])
                return Generated(found, text[: places[stop]], text, "stop", stop)
        text = self.decode(found)
        return Generated(found, text, text, "length")


@cache
def fake_model(noise: float = 0.0) -> FakeModel:
    """Returns the model with these changes, the same object for all tests of a process."""
    return FakeModel(noise)


class HttpError(Exception):
    """A reply with another status than 200."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__(status, body)
        self.status, self.body = status, body


Handler = Callable[[Any], Any]
"""Returns the reply to the JSON body of a request (None for GET); raises `HttpError`."""


class FakeServer:
    """Base class of the servers of `fake_dialects.py`: has a model, and counts its requests.

    Attributes:
        model: the model behind the server. A test may replace it while the server runs.
        name: the name of the model in requests.
        counts: the number of requests by method and path, such as "POST /v1/completions".
        bodies: the bodies of all POST requests, in order.
        url: the root of the running server.
    """

    name = "demo"

    def __init__(self, model: FakeModel | None = None) -> None:
        self.model = model or fake_model()
        self.counts: Counter[str] = Counter()
        self.bodies: list[Any] = []
        self.url = ""

    def routes(self) -> Mapping[str, Handler]:
        """Returns the handlers by method and path; all other paths are not found."""
        raise NotImplementedError

    def not_found(self) -> Any:
        """Returns the body of a reply with status 404."""
        return {"detail": "Not Found"}

    def rows_of(self, tokens: Sequence[int]) -> Floats:
        """Returns the distribution of each token of a prompt, given those before it.

        The first row has no meaning. This is what a server that lies changes.
        """
        after = self.model.after(tokens)
        rows: Floats = np.vstack([np.zeros_like(after[:1]), after[:-1]])
        return rows

    @property
    def posts(self) -> int:
        """The number of POST requests so far."""
        return sum(number for path, number in self.counts.items() if path.startswith("POST"))

    @property
    def total(self) -> int:
        """The number of requests so far."""
        return self.counts.total()

    def forget(self) -> None:
        """Sets all counts to zero."""
        self.counts.clear()
        self.bodies.clear()

    async def handle(self, request: web.Request) -> web.Response:
        """Answers one HTTP request."""
        path = f"{request.method} {request.path}"
        self.counts[path] += 1
        handler = self.routes().get(path)
        if handler is None:
            return web.json_response(self.not_found(), status=404)
        body = await request.json() if request.method == "POST" else None
        if request.method == "POST":
            self.bodies.append(body)
        try:
            return web.json_response(handler(body))
        except HttpError as error:
            if isinstance(error.body, str):
                return web.Response(text=error.body, status=error.status)
            return web.json_response(error.body, status=error.status)


ServerT = TypeVar("ServerT", bound=FakeServer)


@contextmanager
def serving(server: ServerT) -> Iterator[ServerT]:
    """Runs a server on a free port inside the `with` block; yields it, with `url` set."""
    loop = asyncio.new_event_loop()
    started = threading.Event()
    ended = threading.Event()

    async def start() -> web.AppRunner:
        application = web.Application()
        application.router.add_route("*", "/{path:.*}", server.handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return runner

    def run() -> None:
        asyncio.set_event_loop(loop)
        runner = loop.run_until_complete(start())
        started.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()
        ended.set()

    threading.Thread(target=run, name="fake-server", daemon=True).start()
    assert started.wait(START_SECONDS), "the fake server did not start"
    with numpy_on_one_thread():  # several threads are much slower on a busy machine
        try:
            yield server
        finally:
            loop.call_soon_threadsafe(loop.stop)
            ended.wait(START_SECONDS)
