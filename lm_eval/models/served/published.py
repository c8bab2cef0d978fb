"""Adapts model classes that override hooks of the published API classes.

Third-party subclasses of `TemplateAPI` and `LocalCompletionsAPI` override `_create_payload`,
`parse_generations` and other methods. `PublishedDialect` calls these methods;
the other dialects need none. For classes that send requests themselves, see `hook_calls.py`.
"""

from __future__ import annotations

import copy
import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from lm_eval.api.instance import Completion
from lm_eval.models.planned.jobs import Prompt, Sampling, Score, Window
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.exchange import BadReplyError
from lm_eval.models.served.hook_errors import HookGuard, accepted
from lm_eval.redaction import Redactor, credentials

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
        "served.base",
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
    auth_token: str | None
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

    The model decides about stop strings, parameters and the form of answers. What an error in these
    methods means is decided by `guard`.
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
        self.guard = HookGuard(lm, self._hide)
        self._warned = False

    def _hide(self, text: str) -> str:
        """Returns a message in which the API keys of the model are replaced by `***`."""
        secrets = [str(self._lm.auth_token or ""), *credentials(self._lm.header)]
        return Redactor(secrets).text(text)

    def generate_payload(self, prompts: Sequence[Prompt], sampling: Sampling) -> dict[str, Any]:
        gen_kwargs = sampling.gen_kwargs if isinstance(sampling, PublishedSampling) else {}
        seed = self._lm._seed if sampling.seed is None else sampling.seed
        return self._payload(messages_of(prompts), True, gen_kwargs, seed)

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
        message = self.guard.build(self._lm.create_message, messages)
        payload: dict[str, Any] = self.guard.build(create, message, **accepted(create, keywords))
        return payload

    def read_generated(self, reply: Any, prompts: int, samples: int) -> list[list[Completion]]:
        return [[answer] for answer in self._without_nulls(self._generations(reply, prompts))]

    def _generations(self, reply: Any, count: int) -> list[Any]:
        """Returns the `count` answers that `parse_generations` reads from a reply.

        Raises `BadReplyError` if some are missing, and `ModelError` for a mistake in the hook.
        """
        parse = self._lm.parse_generations
        answers: list[Any] = self.guard.read(
            parse, partial(listed_answers, count=count), outputs=reply
        )
        return answers

    def _without_nulls(self, answers: list[Any]) -> list[Any]:
        """Returns the answers with None replaced by `NONE_ANSWER`; warns the first time."""
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
        tokens, starts = [list(w.tokens) for w in windows], [w.start for w in windows]
        found: list[Score] = self.guard.read(
            self._lm.parse_logprobs,
            partial(read_scores, count=len(windows)),
            outputs=reply,
            tokens=tokens,
            ctxlens=starts,
        )
        return found


def messages_of(prompts: Sequence[Prompt]) -> list[Any]:
    return [p.message if isinstance(p, PublishedPrompt) else p.text for p in prompts]


def listed_answers(found: Any, count: int) -> list[Any]:
    """Returns the first `count` items of what a hook returned.

    Raises `BadReplyError` if there are fewer, and `TypeError` if it is not a list.
    """
    if not isinstance(found, Iterable) or isinstance(found, (str, Mapping)):
        raise TypeError(f"it returned {type(found).__name__} instead of a list of answers")
    answers = list(found)
    if len(answers) < count:
        raise BadReplyError(f"the model class returned {len(answers)} answers instead of {count}")
    return answers[:count]


def read_scores(found: Any, count: int) -> list[Score]:
    """Returns the first `count` pairs (log-likelihood, is_greedy) of what a hook returned.

    Raises `TypeError` or `ValueError` if they are no such pairs, and `BadReplyError` if there are
    fewer.
    """
    return [(float(score), bool(greedy)) for score, greedy in listed_answers(found, count)]
