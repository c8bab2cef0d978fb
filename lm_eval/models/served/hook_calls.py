"""For model classes that send requests themselves, by overriding `model_call` or `amodel_call`.

`HookDialect` and `HookTransport` call these methods in place of HTTP requests.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Any

from lm_eval.errors import EvalError
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window
from lm_eval.models.served.exchange import BadReplyError
from lm_eval.models.served.hook_errors import accepted
from lm_eval.models.served.published import (
    CALL_HOOKS,
    PublishedDialect,
    PublishedModel,
    PublishedPrompt,
    PublishedSampling,
    listed_answers,
    messages_of,
    read_scores,
)
from lm_eval.models.served.transport import (
    BrokenReplyError,
    HttpSettings,
    HttpTransport,
    Reply,
    TimedOutError,
    UnreachableError,
)


@dataclass(frozen=True)
class HookCall:
    """The arguments of one call of `model_call` or `amodel_call`."""

    messages: list[Any]
    generate: bool
    gen_kwargs: Mapping[str, Any] | None
    cache_keys: list[Any]
    ctxlens: list[int | None]


class HookDialect(PublishedDialect):
    """Has an overridden `model_call` or `amodel_call` send the requests.

    `model_call` returns a reply that is read as usual. `amodel_call` returns the answers.

    Neither arguments nor results need to be JSON. So they are kept here, and the bodies that the
    client sends and receives contain only the number of a call.
    """

    name = "calls of the model class"

    def __init__(self, lm: PublishedModel, asynchronous: bool) -> None:
        super().__init__(lm)
        self.asynchronous = asynchronous
        self._numbers = itertools.count()
        self._calls: dict[int, HookCall] = {}
        self._results: dict[int, Any] = {}

    @property
    def hook_name(self) -> str:
        """The name of the method that sends requests."""
        return CALL_HOOKS[self.asynchronous]

    @property
    def address(self) -> str:
        """What takes the place of an address in requests and messages."""
        return f"{type(self._lm).__name__}.{self.hook_name}"

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        gen_kwargs = sampling.gen_kwargs if isinstance(sampling, PublishedSampling) else {}
        keys = [p.arguments if isinstance(p, PublishedPrompt) else (p.text,) for p in prompts]
        return self._add(messages_of(prompts), True, gen_kwargs, keys, [None] * len(prompts))

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        keys = [
            None if w.text is None else (w.text[: w.boundary], w.text[w.boundary :])
            for w in windows
        ]
        tokens = [list(w.tokens) for w in windows]
        return self._add(tokens, False, None, keys, [w.start for w in windows])

    def _add(
        self,
        messages: list[Any],
        generate: bool,
        gen_kwargs: Mapping[str, Any] | None,
        cache_keys: list[Any],
        ctxlens: list[int | None],
    ) -> dict[str, Any]:
        number = next(self._numbers)
        copied = copy.deepcopy(gen_kwargs)
        self._calls[number] = HookCall(messages, generate, copied, cache_keys, ctxlens)
        return {"call": number}

    def _generations(self, reply: Any, count: int) -> list[Any]:
        found = self._results.pop(reply["call"])
        if not self.asynchronous:
            return super()._generations(found, count)
        return self._of_call(partial(listed_answers, found, count))

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        found = self._results.pop(reply["call"])
        if not self.asynchronous:
            return super().read_score(found, windows)
        return self._of_call(partial(read_scores, found, len(windows)))

    @staticmethod
    def _of_call(read: Callable[[], list[Any]]) -> list[Any]:
        """Returns what `read` returns; its `TypeError` or `ValueError` becomes a `BadReplyError`.

        `read` checks what `amodel_call` returned.
        """
        try:
            return read()
        except (TypeError, ValueError) as error:
            raise BadReplyError(f"amodel_call: {error}") from error

    def make_transport(self, settings: HttpSettings) -> HookTransport:
        """Returns the transport that makes the calls."""
        return HookTransport(self, self._lm, settings)

    async def call(self, body: bytes, session: Any, semaphore: asyncio.Semaphore, pool: Any) -> Any:
        """Calls the hook with the arguments that were kept under the number in `body`.

        Its result is kept under the same number, which the returned body of a reply contains.
        `session` and `semaphore` are arguments of `amodel_call`; `model_call` runs in a thread of
        `pool`. Raises what the hook raises, and `BrokenReplyError` if `model_call` returns None.
        """
        number = json.loads(body)["call"]
        call = self._calls.pop(number)
        keywords = {
            "messages": call.messages,
            "generate": call.generate,
            "gen_kwargs": call.gen_kwargs,
        }
        if self.asynchronous:
            extras = {"cache_keys": call.cache_keys, "ctxlens": call.ctxlens}
            hook = self._lm.amodel_call
            arguments = call_arguments(hook, session, semaphore, {**keywords, **extras})
            self._results[number] = await hook(**arguments)
        else:
            hook = partial(self._lm.model_call, **accepted(self._lm.model_call, keywords))
            found = await asyncio.get_running_loop().run_in_executor(pool, hook)
            if found is None:
                raise BrokenReplyError("model_call returned None")
            self._results[number] = found
        self.guard.called(self.hook_name)
        return json.dumps({"call": number}).encode()


def call_arguments(
    hook: Callable[..., Any], session: Any, semaphore: asyncio.Semaphore, others: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments that `hook`, an `amodel_call`, accepts; without `sem` if it has none.

    Older versions of the published harness passed no semaphore, so that in classes written for them
    it would end up in `**kwargs` and from there in the body of the request.
    """
    parameters = inspect.signature(hook).parameters
    takes_any = any(p.kind is p.VAR_POSITIONAL for p in parameters.values())
    given = {"session": session, "sem": semaphore, **others}
    if "sem" not in parameters and not takes_any:
        del given["sem"]
    return accepted(hook, given)


class HookTransport(HttpTransport):
    """A `Transport` that calls the hooks of a model; requests to other addresses go over HTTP.

    `model_call` is called in threads, of which there are as many as requests in flight.
    `amodel_call` is called in the event loop.
    """

    def __init__(self, dialect: HookDialect, lm: PublishedModel, settings: HttpSettings) -> None:
        super().__init__(settings)
        self._dialect, self._lm = dialect, lm

    async def __aenter__(self) -> HookTransport:
        await super().__aenter__()
        # The number of requests in flight is limited by the client.
        self._semaphore = asyncio.Semaphore(1_000_000)
        self._pool = ThreadPoolExecutor(max(1, self._lm._concurrent), "lm_eval-model_call")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        await super().__aexit__(kind, error, traceback)

    async def post(self, url: str, body: bytes, fresh: bool = False) -> Reply:
        if url != self._dialect.address:
            return await super().post(url, body, fresh)
        session = self._session_for(self._lm.base_url, fresh)
        try:
            return Reply(200, await self._dialect.call(body, session, self._semaphore, self._pool))
        except Exception as error:  # third-party code
            self._dialect.guard.called(self._dialect.hook_name, error)
            return reply_to_error(error)


class FreshHeadersTransport(HttpTransport):
    """An `HttpTransport` that reads the headers of the model anew for each request.

    For classes that override `header` or `api_key`: a token may expire during a run.
    """

    def __init__(self, settings: HttpSettings, lm: PublishedModel) -> None:
        super().__init__(settings)
        self._lm = lm

    async def post(self, url: str, body: bytes, fresh: bool = False) -> Reply:
        session = self._session_for(url, fresh)
        return await self._send(session.post(url, data=body, headers=self._lm.header))


def reply_to_error(error: Exception) -> Reply:
    """Returns the reply that an error of an HTTP library stands for; raises if it stands for none.

    Errors of requests, aiohttp, openai and litellm have the status of the reply. Others are raised
    as the errors of a `Transport`: the client retries the request. Mistakes in the code and
    refusals (`NotImplementedError`) are raised as they are, and end the run.
    """
    ours = (EvalError, UnreachableError, TimedOutError, BrokenReplyError)
    if isinstance(error, (*ours, NotImplementedError, NameError, ImportError, AssertionError)):
        raise error
    response = getattr(error, "response", None)
    for holder, name in ((error, "status_code"), (error, "status"), (response, "status_code")):
        status = getattr(holder, name, None)
        if isinstance(status, int) and 400 <= status < 600:
            headers = getattr(error, "headers", None) or getattr(response, "headers", None) or {}
            shown = getattr(error, "message", None) or getattr(response, "text", None) or error
            body = {"error": {"message": str(shown), "type": type(error).__name__}}
            return Reply(status, json.dumps(body).encode(), dict(headers))
    names = {kind.__name__ for kind in type(error).__mro__}
    words = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if names & {"TimeoutError", "Timeout", "APITimeoutError"}:
        raise TimedOutError(words) from error
    if names & {"ClientConnectorError", "ConnectionError", "APIConnectionError"}:
        raise UnreachableError(words) from error
    raise BrokenReplyError(words) from error
