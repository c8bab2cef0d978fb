"""Adapts model classes that override hooks of the published API classes.

Third-party subclasses of `TemplateAPI` and `LocalCompletionsAPI` override `_create_payload`,
`parse_generations` and other methods. `PublishedDialect` calls these methods in place of a dialect
of ours. `HookDialect` and `HookTransport` do the same for classes that send requests themselves, by
overriding `model_call` or `amodel_call`.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import itertools
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from types import TracebackType
from typing import Any, Protocol

from lm_eval.api.instance import Completion
from lm_eval.errors import EvalError
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.exchange import BadReplyError
from lm_eval.models.served.transport import (
    BrokenReplyError,
    HttpSettings,
    HttpTransport,
    Reply,
    TimedOutError,
    UnreachableError,
)

logger = logging.getLogger(__name__)

#: The modules with our own versions of the hooks.
OUR_MODULES = frozenset(
    f"lm_eval.models.{name}"
    for name in (
        "anthropic_llms",
        "api_models",
        "gguf",
        "litellm_llms",
        "openai_completions",
        "sglang_generate_API",
        "served.model",
        "served.published_attributes",
    )
) | {"lm_eval.api.model"}

#: Hooks that build requests and read replies.
PAYLOAD_HOOKS = ("_create_payload", "create_message", "parse_generations", "parse_logprobs")
#: Hooks that send a request.
CALL_HOOKS = ("model_call", "amodel_call")
#: The hook that sends all requests.
BATCH_HOOK = "get_batched_requests"

#: The answer that stands for a null in a reply.
NONE_ANSWER = os.environ.get("LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER", "")


def is_overridden(owner: object, name: str) -> bool:
    """Returns whether a method is not ours: a subclass overrides it, or it was patched.

    Finds patches of the class and of the object. `owner` is an object or a class; pass the class
    for a `cached_property`, whose value is stored in the object.
    """
    found = inspect.getattr_static(owner, name, None)
    if found is None:
        return False
    for inner in ("__func__", "fget", "func"):  # staticmethod, property, cached_property
        found = getattr(found, inner, found)
    # `functools.wraps` copies `__module__`, but not `__globals__`.
    return getattr(found, "__globals__", {}).get("__name__") not in OUR_MODULES


def accepted(function: Callable[..., Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Returns those keyword arguments that a function accepts; all if it takes `**kwargs`."""
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(keywords)
    return {name: value for name, value in keywords.items() if name in parameters}


@dataclass(frozen=True)
class PublishedPrompt(Prompt):
    """A prompt in the form that the hooks take.

    Attributes:
        message: the token ids, the text, or the chat (`JsonChatStr` or a list of messages).
        arguments: the arguments of the request, under which its answer is reported.
    """

    message: Any = ""
    arguments: tuple[Any, ...] = ()


@dataclass(frozen=True)
class PublishedSampling(Sampling):
    """Generation settings as the task gives them. `until` is empty: the hooks apply stop strings.

    Attributes:
        gen_kwargs: the second argument of the request.
    """

    gen_kwargs: Mapping[str, Any] = field(default_factory=dict)


class PublishedModel(Protocol):
    """What the adapters use of a model: the published hooks, and the settings that they read."""

    model: str
    base_url: str
    _batch_size: int

    @property
    def _concurrent(self) -> int: ...
    @property
    def _seed(self) -> int: ...
    @property
    def eos_string(self) -> str | None: ...
    @property
    def dialect_is_chat(self) -> bool: ...
    @property
    def header(self) -> dict[str, str]: ...

    @property
    def create_message(self) -> Callable[..., Any]: ...
    @property
    def _create_payload(self) -> Callable[..., Any]: ...
    @property
    def parse_generations(self) -> Callable[..., Any]: ...
    @property
    def parse_logprobs(self) -> Callable[..., Any]: ...
    @property
    def model_call(self) -> Callable[..., Any]: ...
    @property
    def amodel_call(self) -> Callable[..., Any]: ...


class PublishedDialect(Dialect):
    """Builds bodies with `_create_payload`, and reads replies with `parse_generations` and so on.

    The model decides about stop strings, parameters and the form of answers. An error while a reply
    is read makes the client send the request again, as for a reply that our dialects cannot read.
    """

    name = "hooks of the model class"
    scores = True
    #: None: a refused request is not changed. Hooks may write each body anew, with a time or a
    #: random number, so that a changed body tells nothing.
    adapt: Any = None

    def __init__(self, lm: PublishedModel) -> None:
        super().__init__(lm.model, accepts_lists=lm._batch_size > 1)
        self.is_chat = lm.dialect_is_chat
        self._lm = lm
        self._warned = False

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        gen_kwargs = sampling.gen_kwargs if isinstance(sampling, PublishedSampling) else {}
        seed = self._lm._seed if sampling.seed is None else sampling.seed
        return self._payload(_messages(prompts), True, gen_kwargs, seed)

    def score_payload(self, windows: Sequence[Window]) -> dict[str, Any]:
        return self._payload([list(w.tokens) for w in windows], False, None, self._lm._seed)

    def _payload(
        self, messages: list[Any], generate: bool, gen_kwargs: Mapping[str, Any] | None, seed: int
    ) -> dict[str, Any]:
        # Most overrides remove items from `gen_kwargs`, and a request may be sent several times.
        copied = copy.deepcopy(gen_kwargs)
        keywords: dict[str, Any] = {"generate": generate, "gen_kwargs": copied, "seed": seed}
        if (eos := self._lm.eos_string) is not None:
            keywords["eos"] = eos
        create = self._lm._create_payload
        payload: dict[str, Any] = create(
            self._lm.create_message(messages), **accepted(create, keywords)
        )
        return payload

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        return [[answer] for answer in self._answers(self._parsed_generations(reply), prompts)]

    def _parsed_generations(self, reply: Any) -> Any:
        return _read(self._lm.parse_generations, outputs=reply)

    def _answers(self, found: Any, count: int) -> list[Any]:
        """Returns `count` answers, with the placeholder for a null; raises if some are missing."""
        answers = _listed(found, count)
        if any(answer is None for answer in answers) and not self._warned:
            self._warned = True
            logger.warning(
                "The server returned null in place of an answer, perhaps because the maximum "
                "length was reached while the model was reasoning. The answer %r is used (set it "
                "with the environment variable LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER). Further ones "
                "are not logged.",
                NONE_ANSWER,
            )
        return [NONE_ANSWER if answer is None else answer for answer in answers]

    def read_score(self, reply: Any, windows: Sequence[Window]) -> list[Score]:
        return _scores(self._parsed_logprobs(reply, windows), len(windows))

    def _parsed_logprobs(self, reply: Any, windows: Sequence[Window]) -> Any:
        tokens, starts = [list(w.tokens) for w in windows], [w.start for w in windows]
        return _read(self._lm.parse_logprobs, outputs=reply, tokens=tokens, ctxlens=starts)


def _messages(prompts: Sequence[Prompt]) -> list[Any]:
    return [p.message if isinstance(p, PublishedPrompt) else p.text for p in prompts]


def _read(parse: Callable[..., Any], **keywords: Any) -> Any:
    """Returns what a hook reads from a reply; raises `BadReplyError` if the hook fails."""
    try:
        return parse(**accepted(parse, keywords))
    except (EvalError, NotImplementedError):
        raise
    except Exception as error:  # third-party code
        name = getattr(parse, "__name__", "the model class")
        raise BadReplyError(f"{name} failed: {type(error).__name__}: {error}") from error


def _listed(found: Any, count: int) -> list[Any]:
    """Returns the first `count` items; raises `BadReplyError` if there are fewer."""
    if not isinstance(found, Iterable) or isinstance(found, (str, Mapping)):
        raise BadReplyError(f"{type(found).__name__} instead of a list of answers")
    answers = list(found)
    if len(answers) < count:
        raise BadReplyError(f"{len(answers)} answers instead of {count}")
    return answers[:count]


def _scores(found: Any, count: int) -> list[Score]:
    try:
        return [(float(score), bool(greedy)) for score, greedy in _listed(found, count)]
    except (TypeError, ValueError) as error:
        raise BadReplyError(f"a log-likelihood is not a pair: {error}") from error


# -- classes that send requests themselves ------------------------------------------------------


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
    def address(self) -> str:
        """What takes the place of an address in requests and messages."""
        return f"{type(self._lm).__name__}.{CALL_HOOKS[self.asynchronous]}"

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        gen_kwargs = sampling.gen_kwargs if isinstance(sampling, PublishedSampling) else {}
        keys = [p.arguments if isinstance(p, PublishedPrompt) else (p.text,) for p in prompts]
        return self._add(_messages(prompts), True, gen_kwargs, keys, [None] * len(prompts))

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

    def _parsed_generations(self, reply: Any) -> Any:
        found = self._results.pop(reply["call"])
        return found if self.asynchronous else super()._parsed_generations(found)

    def _parsed_logprobs(self, reply: Any, windows: Sequence[Window]) -> Any:
        found = self._results.pop(reply["call"])
        return found if self.asynchronous else super()._parsed_logprobs(found, windows)

    def make_transport(self, settings: HttpSettings) -> HookTransport:
        """Returns the transport that makes the calls."""
        return HookTransport(self, self._lm, settings)

    async def call(self, body: bytes, session: Any, semaphore: asyncio.Semaphore, pool: Any) -> Any:
        """Makes the call that a body contains; returns the body of the reply."""
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
        return json.dumps({"call": number}).encode()


def call_arguments(
    hook: Callable[..., Any], session: Any, semaphore: asyncio.Semaphore, others: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the arguments for `amodel_call`; without `sem` for the form that older classes have.

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
