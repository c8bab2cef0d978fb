"""`TemplateAPI`: the base class of third-party model classes that call a server.

Classes written for the published harness override single steps, such as `_create_payload` and
`parse_generations`. Such a class is served by `PublishedDialect`, which calls these methods. Our
own subclasses, which override none of them, use the dialects of `lm_eval.models.served`.
"""

from __future__ import annotations

import abc
import asyncio
import copy
import functools
import importlib
import inspect
import itertools
import json
import logging
import random
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar, cast

from aiohttp import ClientSession, ClientTimeout, TCPConnector

from lm_eval.api.instance import Completion, Failure, Instance
from lm_eval.api.model import TemplateLM
from lm_eval.engine.progress import stage
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.batching import chunks as in_chunks
from lm_eval.models.conventions import rolling_windows
from lm_eval.models.planned.jobs import Sampling, Window
from lm_eval.models.served.argument_checks import check_arguments, check_key, registered_name
from lm_eval.models.served.certificate import Certificate
from lm_eval.models.served.client import Client, run_in_thread
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.hook_calls import (
    FreshHeadersTransport,
    HookDialect,
    call_arguments,
    reply_to_error,
)
from lm_eval.models.served.hook_errors import accepted
from lm_eval.models.served.images import create_image_prompt, images_of
from lm_eval.models.served.messages import JsonChatStr
from lm_eval.models.served.published import (
    BATCH_HOOK,
    CALL_HOOKS,
    NONE_ANSWER,
    OUR_MODULES,
    PublishedDialect,
    PublishedPrompt,
    PublishedSampling,
    is_overridden,
)
from lm_eval.models.served.published_attributes import PublishedAttributes
from lm_eval.models.served.retry import FATAL, RetryPolicy, error_message
from lm_eval.models.served.transport import (
    BrokenReplyError,
    HttpSettings,
    TimedOutError,
    Transport,
    UnreachableError,
    is_local,
)

__all__ = [
    "LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER",
    "JsonChatStr",
    "LogLikelihoodInputs",
    "TemplateAPI",
    "create_image_prompt",
]

logger = logging.getLogger(__name__)

#: The answer that is used where a server returns null; from the environment variable of this name.
LMEVAL_MODEL_NONE_ANSWER_PLACEHOLDER = NONE_ANSWER

LogLikelihoodInputs = tuple[tuple[str, str], list[int], list[int]]
"""A scoring request: `(context, continuation)`, and the tokens of each."""


class TemplateAPI(PublishedAttributes):
    """A model on a server, with the methods and attributes of the published class of this name.

    A third-party subclass implements `_create_payload`, `parse_generations` and `parse_logprobs`,
    and may override `create_message`, `api_key`, `header`, `model_call`, `amodel_call`,
    `get_batched_requests` and others. Requests are sent to `base_url` as it is given. The arguments
    are those of `PublishedAttributes`.
    """

    MULTIMODAL = True
    key_variable: ClassVar[str] = ""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        template = vars(cls).get("apply_chat_template")
        if inspect.isfunction(template) and not accepted(template, {"add_generation_prompt": True}):
            # Written for an older version of the published harness.
            cls.apply_chat_template = _with_generation_prompt(template)  # type: ignore[method-assign]

    # -- what the overridden hooks decide ----------------------------------------------------------

    @cached_property
    def dialect(self) -> Dialect:
        if not self.overrides_hooks:
            return super().dialect
        if not self._overrides(*CALL_HOOKS):
            return PublishedDialect(self)
        # As published: without concurrency `model_call` sends the requests.
        together = self._overrides("amodel_call") and (
            self._concurrent > 1 or not self._overrides("model_call")
        )
        return HookDialect(self, asynchronous=together)

    @cached_property
    def certificate(self) -> Certificate:
        """What the server can do; not probed if a subclass overrides how it is used."""
        if self.overrides_hooks:
            return Certificate(server="not probed", dialect=PublishedDialect.name)
        return super().certificate

    def assumed_certificate(self) -> Certificate:
        return replace(super().assumed_certificate(), settings=self.dialect_settings)

    def _cannot_cut(self, budget: int) -> str | None:
        if self.overrides_hooks:
            return (
                f"{type(self).__name__} builds, sends or reads requests in its own way, to which "
                "thinking_budget cannot be applied; leave it out"
            )
        return super()._cannot_cut(budget)

    def cannot_measure(self, request_type: str) -> str | None:
        """Returns why requests of a type cannot be answered; None if they can.

        An overridden method is called without requests: if it raises `NotImplementedError`, its
        message is the reason.
        """
        if request_type == "generate_until":
            return super().cannot_measure(request_type)
        if not self.overrides_hooks and not self._overrides(request_type):
            return super().cannot_measure(request_type)
        try:
            getattr(self, request_type)([])
        except NotImplementedError as error:
            return str(error) or f"{type(self).__name__} does not implement {request_type}"
        except Exception as error:  # third-party code; the requests will show whether it works
            logger.debug("%s without requests: %r", request_type, error)
        return None

    # -- checks before a run -----------------------------------------------------------------------

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        if cls.__module__ not in OUR_MODULES:
            return  # a third-party class has arguments and requirements of its own
        name = registered_name(cls)
        check_arguments(cls, name, arguments)
        super().check_before_loading(arguments, chat_template)
        if not any(arguments.get(key) for key in ("model", "pretrained", "identity")):
            raise ConfigError(
                f"the model {name!r} needs the name of the model on the server: pass "
                "--model_args model=NAME."
            )
        check_key(cls, arguments)

    # -- hooks: building and reading requests ------------------------------------------------------

    @abc.abstractmethod
    def _create_payload(
        self,
        messages: Any,
        *,
        generate: bool = True,
        gen_kwargs: dict[str, Any] | None = None,
        seed: int = 1234,
        eos: str | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        """Returns the JSON body of a request.

        Args:
            messages: what `create_message` returned.
            generate: whether an answer is wanted; if not, the log-probabilities of the prompt.
            gen_kwargs: the generation settings of the task; a copy, which may be changed.
            seed: for sampled answers.
            eos: the end-of-text token as text, if it is known.
            kwargs: further arguments that a subclass passes to `model_call`.
        """

    def create_message(self, messages: Any, generate: bool = False) -> Any:
        """Returns prompts in the form that the API takes.

        Args:
            messages: a batch of prompts: lists of token ids, texts, or chats.
            generate: without effect.

        Returns:
            The list of messages of a chat. Otherwise the token ids, or the text of each prompt if
            `tokenized_requests` is False; that of the first prompt alone for a batch size of 1.
        """
        first = messages[0]
        if isinstance(first, JsonChatStr):
            if self._batch_size != 1:
                raise ConfigError("chats are sent one by one: pass batch_size=1.")
            return json.loads(first)
        if self.tokenized_requests:
            return messages
        if first and isinstance(first[0], int):
            messages = self.decode_batch(messages)
        return messages[0] if self._batch_size <= 1 else messages

    @staticmethod
    @abc.abstractmethod
    def parse_logprobs(
        outputs: Any,
        tokens: list[list[int]] | None = None,
        ctxlens: list[int] | None = None,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        """Returns the log-likelihood of each continuation, and whether it is greedy.

        Args:
            outputs: the reply, or a list of replies.
            tokens: context and continuation of each prompt.
            ctxlens: how many of the tokens are context.
            kwargs: further arguments that a subclass passes.
        """

    @staticmethod
    @abc.abstractmethod
    def parse_generations(outputs: Any, **kwargs: Any) -> list[Any]:
        """Returns the answers in a reply or a list of replies; None where there is none."""

    # -- hooks: sending requests -------------------------------------------------------------------

    def model_call(
        self,
        messages: Any,
        *,
        generate: bool = True,
        gen_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> Any:
        """Sends one request and returns the reply; raises the errors of the package requests.

        Args:
            messages: a batch of prompts, as in `create_message`.
            generate, gen_kwargs: as in `_create_payload`.
            kwargs: passed to `_create_payload`.
        """
        payload = self._create_payload(
            self.create_message(messages),
            generate=generate,
            gen_kwargs=cast("Any", copy.deepcopy(gen_kwargs)),
            seed=self._seed,
            eos=self.eos_string,
            **kwargs,
        )
        return self._post(payload)

    def _post(self, payload: Any) -> Any:
        """Sends a body and returns the reply as JSON data; raises the errors of requests."""
        requests: Any = importlib.import_module("requests")
        response = requests.post(
            self.request_url,
            json=payload,
            headers=self.header,
            verify=self.ca_cert_path if self._has_certificates else self.verify_certificate,
            timeout=self.timeout,
        )
        if not response.ok:
            logger.warning("The request failed: %s", str(response.text)[:300])
        response.raise_for_status()
        return response.json()

    @property
    def _has_certificates(self) -> bool:
        return self.verify_certificate and self.ca_cert_path is not None

    async def amodel_call(
        self,
        session: Any,
        sem: asyncio.Semaphore | None,
        messages: Any,
        *,
        generate: bool = True,
        cache_keys: list[Any] | None = None,
        ctxlens: list[int] | None = None,
        gen_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        """Sends one request, reports its answers to the cache hook, and returns them.

        Args:
            session: sends the request; an `aiohttp.ClientSession`.
            sem: held while the request is in flight; None for no limit.
            messages: a batch of prompts, as in `create_message`.
            generate, gen_kwargs: as in `_create_payload`.
            cache_keys: the arguments of the requests, in order; None or [] to report nothing.
            ctxlens: as in `parse_logprobs`.
            kwargs: passed to `_create_payload`.
        """
        payload = self._create_payload(
            self.create_message(messages),
            generate=generate,
            gen_kwargs=cast("Any", copy.deepcopy(gen_kwargs)),
            seed=self._seed,
            **kwargs,
        )
        async with sem or nullcontext():
            outputs = await self._apost(session, payload)
        if generate:
            found = self.parse_generations(outputs=outputs)
        else:
            found = self.parse_logprobs(outputs=outputs, tokens=messages, ctxlens=ctxlens)
        answers = [NONE_ANSWER if answer is None else answer for answer in found]
        method = "generate_until" if generate else "loglikelihood"
        for key, answer in zip(cache_keys or (), answers, strict=False):
            if key is not None:
                self.cache_hook.add_partial(method, key, answer)
        return answers

    async def _apost(self, session: Any, payload: Any) -> Any:
        """Sends a body with an `aiohttp.ClientSession`; returns the reply as JSON data."""
        async with session.post(self.request_url, json=payload, headers=self.header) as response:
            if not response.ok:
                logger.warning("The request failed: %s", (await response.text())[:300])
            response.raise_for_status()
            return await response.json()

    async def get_batched_requests(
        self,
        requests: list[Any],
        cache_keys: list[Any],
        *,
        generate: bool = True,
        ctxlens: list[int] | None = None,
        **kwargs: Any,
    ) -> list[list[Any]]:
        """Sends requests with `amodel_call`, as many at once as `num_concurrent`.

        Returns for each batch of `batch_size` prompts the list of its answers. A request that still
        fails after `max_retries` attempts has a `Failure` in their place.

        Args:
            requests: the prompts, as in `create_message`.
            cache_keys: the arguments of the requests, in the same order.
            generate: as in `_create_payload`.
            ctxlens: as in `parse_logprobs`.
            kwargs: passed to `amodel_call`, for example `gen_kwargs`.
        """
        connector = TCPConnector(limit=self._concurrent, ssl=self._ssl())
        semaphore = asyncio.Semaphore(self._concurrent)
        lengths: Sequence[Any] = ctxlens or [None] * len(requests)
        size = self._batch_size
        async with ClientSession(
            connector=connector,
            timeout=ClientTimeout(total=self.timeout),
            trust_env=not is_local(self.base_url),
        ) as session:
            calls = [
                self._call_with_retries(
                    session,
                    semaphore,
                    {
                        "messages": messages,
                        "cache_keys": keys,
                        "generate": generate,
                        "ctxlens": some,
                        **kwargs,
                    },
                )
                for messages, keys, some in zip(
                    in_chunks(requests, size),
                    in_chunks(cache_keys, size),
                    in_chunks(lengths, size),
                    strict=False,
                )
            ]
            return list(await asyncio.gather(*calls))

    def _ssl(self) -> Any:
        if self._has_certificates:
            return ssl.create_default_context(cafile=self.ca_cert_path)
        return self.verify_certificate

    async def _call_with_retries(
        self, session: Any, semaphore: asyncio.Semaphore, keywords: Mapping[str, Any]
    ) -> list[Any]:
        """Returns the answers of one call of `amodel_call`, which is repeated if it fails.

        If all attempts fail, returns a `Failure` per prompt. `keywords` are its arguments besides
        session and semaphore. Raises `ModelError` if the server refuses all requests.
        """
        policy, rng, reason = self.retry_policy, random.Random(), ""
        attempts = max(1, self.max_retries or 1)
        for attempt in range(1, attempts + 1):
            # Most overrides remove items from `gen_kwargs`, which all calls and attempts share.
            own = {n: copy.deepcopy(v) if n == "gen_kwargs" else v for n, v in keywords.items()}
            arguments = call_arguments(self.amodel_call, session, semaphore, own)
            try:
                return list(await self.amodel_call(**arguments))
            except Exception as error:  # third-party code
                reason = self._reason_to_retry(error)
            if attempt < attempts:
                logger.info("Attempt %d failed: %s", attempt, reason)
                await asyncio.sleep(policy.wait(attempt, None, rng))
        return [Failure(f"{reason} ({attempts} attempts)")] * len(keywords["messages"])

    @staticmethod
    def _reason_to_retry(error: Exception) -> str:
        """Returns the reason of an error after which a request may be sent again.

        Raises `ModelError` if the server refuses all requests, and `error` if it is a mistake in
        the code.
        """
        try:
            reply = reply_to_error(error)
        except (UnreachableError, TimedOutError, BrokenReplyError) as failed:
            return str(failed)
        reason = f"status {reply.status}: {error_message(reply)}"
        if reply.status in FATAL:
            raise ModelError(f"the server refused a request: {reason}") from error
        return reason

    def make_client(self, policy: RetryPolicy | None = None) -> Client:
        client: Client = super().make_client(policy)
        synchronous = self._overrides("model_call") and not self._sends_together
        client.max_concurrent = self._concurrent if synchronous else self._given_concurrent
        return client

    @property
    def _sends_together(self) -> bool:
        """Whether an overridden `amodel_call` sends the requests."""
        return (
            self.overrides_hooks
            and isinstance(self.dialect, HookDialect)
            and self.dialect.asynchronous
        )

    def make_transport(self) -> Transport:
        """Returns what sends the requests: HTTP, or an overridden `model_call` or `amodel_call`."""
        settings = HttpSettings(
            self.header, self.timeout, self.verify_certificate, self.ca_cert_path
        )
        if self.overrides_hooks and isinstance(self.dialect, HookDialect):
            return self.dialect.make_transport(settings)
        if is_overridden(type(self), "header") or is_overridden(type(self), "api_key"):
            return FreshHeadersTransport(settings, self)
        return super().make_transport()

    def _url(self, path: str) -> str:
        if not self.overrides_hooks:
            return super()._url(path)
        return self.dialect.address if isinstance(self.dialect, HookDialect) else self.request_url

    # -- generation --------------------------------------------------------------------------------

    def generate_until(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[str]:
        if not requests:
            return []
        if self._overrides(BATCH_HOOK):
            return self._generate_in_batches(requests)
        return super().generate_until(requests, disable_tqdm)

    def _generation_jobs(self, requests: Sequence[Instance]) -> Iterable[Any]:
        jobs = super()._generation_jobs(requests)
        if not self.overrides_hooks:
            return jobs
        return (
            replace(
                job,
                prompt=self._published_prompt(requests[job.requests[0]], job.prompt.tokens),
                sampling=PublishedSampling(
                    max_tokens=job.sampling.max_tokens,
                    seed=job.sampling.seed,
                    gen_kwargs=requests[job.requests[0]].args[1],
                ),
            )
            for job in jobs
        )

    def _published_prompt(self, request: Instance, tokens: Sequence[int] | None) -> PublishedPrompt:
        message: Any = request.args[0] if tokens is None else list(tokens)
        if images := images_of(request):
            chat = json.loads(message) if isinstance(message, str) else copy.deepcopy(message)
            chat = create_image_prompt(images[: self.max_images], chat)
            message = JsonChatStr(json.dumps(chat))
        return PublishedPrompt(
            str(request.args[0]), message=message, arguments=tuple(request.args[:2])
        )

    @property
    def _cuts_text(self) -> bool:
        return not self.overrides_hooks and super()._cuts_text

    @property
    def takes_tokens(self) -> bool:
        return self.tokenized_requests if self.overrides_hooks else super().takes_tokens

    def _encode_prompts(self, texts: Sequence[str]) -> list[list[int]]:
        if self.overrides_hooks and self._overrides("tok_encode"):
            return list(self.tok_encode(texts, add_special_tokens=self.add_bos_token))
        return super()._encode_prompts(texts)

    @property
    def _empty_prompt(self) -> list[int]:
        return [] if self.served_tokenizer is None else super()._empty_prompt

    def _messages(self, text: str, request: Instance) -> list[dict[str, Any]]:
        messages = super()._messages(text, request)
        if images := images_of(request):
            return create_image_prompt(images[: self.max_images], messages)
        return messages

    def _finished_answer(self, answer: Any, sampling: Sampling) -> Any:
        if not isinstance(answer, str):
            # A subclass that generates in its own way may rely on the form of its answers.
            return answer if self._overrides("generate_until") else _text_of(answer)
        if isinstance(sampling, PublishedSampling):
            return answer
        finished = super()._finished_answer(cast("Completion", answer), sampling)
        if finished or not NONE_ANSWER:
            return finished
        return finished.changed(NONE_ANSWER)

    def _generate_in_batches(self, requests: list[Instance]) -> list[Any]:
        """Returns the answers of an overridden `get_batched_requests`, one per request, in order.

        It is called once for all requests with equal settings.
        """
        alike: dict[str, list[int]] = {}
        for number, request in enumerate(requests):
            settings = json.dumps(request.args[1], sort_keys=True, default=str)
            alike.setdefault(settings, []).append(number)
        tokens = self._prompt_tokens(requests)
        answers: list[Any] = [""] * len(requests)
        for numbers in alike.values():
            gen_kwargs = requests[numbers[0]].args[1]
            prompts = [self._published_prompt(requests[n], tokens[n]) for n in numbers]
            found = self._send_in_batches(
                [prompt.message for prompt in prompts],
                cache_keys=[(requests[n].args[0], gen_kwargs) for n in numbers],
                generate=True,
                gen_kwargs=copy.deepcopy(gen_kwargs),
            )
            for number, answer in zip(numbers, found, strict=True):
                answer = NONE_ANSWER if answer is None else answer
                is_final = isinstance(answer, (str, Failure)) or self._overrides("generate_until")
                answers[number] = answer if is_final else _text_of(answer)
        return answers

    def _send_in_batches(self, messages: list[Any], **keywords: Any) -> list[Any]:
        """Returns the answers of an overridden `get_batched_requests`, one per message.

        Raises `ModelError` if it returns another number of them.
        """
        with stage("Asking the server"):
            batches = run_in_thread(lambda: self.get_batched_requests(messages, **keywords))
        found = list(itertools.chain.from_iterable(batches))
        if len(found) != len(messages):
            raise ModelError(
                f"{type(self).__name__}.get_batched_requests returned {len(found)} answers for "
                f"{len(messages)} requests."
            )
        return found

    def _report(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        if hasattr(self.cache_hook, "add_batch"):
            super()._report(kind, arguments, answers)
            return
        for one, answer in zip(arguments, answers, strict=True):  # a hook of a third-party class
            self.cache_hook.add_partial(kind, one, answer)

    # -- log-likelihoods ---------------------------------------------------------------------------

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[tuple[float, bool]]:
        if not requests:
            return []
        if self._overrides("_loglikelihood_tokens", "_encode_pair", "tok_encode"):
            return TemplateLM.loglikelihood(self, requests, disable_tqdm)
        return super().loglikelihood(requests, disable_tqdm)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False, **kwargs: Any
    ) -> list[float]:
        if not requests:
            return []
        if not self._overrides("_loglikelihood_tokens", "tok_encode", BATCH_HOOK):
            return super().loglikelihood_rolling(requests, disable_tqdm)
        windows: list[tuple[Any, list[int], list[int]]] = []
        owners: list[int] = []
        for number, request in enumerate(requests):
            tokens = self.tok_encode(request.args[0], add_special_tokens=False)
            for context, rest in rolling_windows(tokens, self.prefix_token_id, self.max_length - 1):
                windows.append((None, context, rest))
                owners.append(number)
        answers: list[Any] = [0.0] * len(requests)
        scores = self._loglikelihood_tokens(windows, disable_tqdm=True)
        for number, score in zip(owners, scores, strict=True):
            if isinstance(score, Failure):
                answers[number] = score
            elif not isinstance(answers[number], Failure):
                answers[number] += score[0]
        self._report("loglikelihood_rolling", [r.args for r in requests], answers)
        return answers

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[Any, list[int], list[int]]],
        disable_tqdm: bool = False,
        tasks: Sequence[str] = (),
        **kwargs: Any,
    ) -> list[Any]:
        if not self._overrides(BATCH_HOOK):
            return super()._loglikelihood_tokens(requests, disable_tqdm, tasks, **kwargs)
        inputs, ctxlens, cache_keys = self.batch_loglikelihood_requests([requests])
        return self._send_in_batches(inputs, cache_keys=cache_keys, generate=False, ctxlens=ctxlens)

    def _window(
        self, arguments: Any, context: list[int], continuation: list[int]
    ) -> tuple[Window, bool]:
        # A subclass may pass a key of its own in place of the texts.
        texts = arguments if isinstance(arguments, tuple) and len(arguments) == 2 else None
        return super()._window(texts, context, continuation)

    def batch_loglikelihood_requests(
        self, chunks: Iterable[Iterable[tuple[Any, list[int], list[int]]]]
    ) -> tuple[list[list[int]], list[int], list[Any]]:
        """Returns the tokens of scoring requests, how many are context, and the cache keys.

        The beginning of a context is cut off if it does not fit into `max_length`.
        """
        inputs, ctxlens, cache_keys = [], [], []
        for cache_key, context, continuation in itertools.chain.from_iterable(chunks):
            window, _ = self._window(None, list(context), list(continuation))
            inputs.append(list(window.tokens))
            ctxlens.append(window.start)
            cache_keys.append(cache_key)
        return inputs, ctxlens, cache_keys


def _with_generation_prompt(template: Callable[..., Any]) -> Callable[..., Any]:
    """Returns `apply_chat_template` with the argument `add_generation_prompt`, which is ignored."""

    @functools.wraps(template)
    def apply(self: Any, chat_history: Any, add_generation_prompt: bool = True) -> Any:
        return template(self, chat_history)

    return apply


def _text_of(answer: Any) -> str:
    """Returns the text of an answer that a hook returned as a message of a chat."""
    if not isinstance(answer, Mapping) or "content" not in answer:
        return str(answer)
    thoughts = answer.get("reasoning_content") or answer.get("reasoning")
    text = NONE_ANSWER if answer["content"] is None else str(answer["content"])
    return Completion(text, str(thoughts) if thoughts else None)
