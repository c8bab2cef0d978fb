"""What a language model must be able to do to be evaluated.

A model takes text and gives text or log-probabilities; its tokenizer is its own affair. Classes
written for the published harness run unchanged: the names and signatures here are theirs.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from lm_eval.api.context import RunContext
from lm_eval.config.arguments import parse_arguments
from lm_eval.errors import ModelError
from lm_eval.launch import connection

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

Self = TypeVar("Self", bound="LM")


class CacheHook:
    """Where a model reports each answer the moment it has it.

    A model calls `self.cache_hook.add_partial(kind, arguments, answer)`, or `add_batch` once for
    all answers of a batch; whoever keeps answers passes the functions that keep them. Without them
    the hook does nothing.
    """

    def __init__(
        self,
        keep: Callable[[str, Any, Any], None] | None = None,
        keep_batch: Callable[[str, Sequence[Any], Sequence[Any]], None] | None = None,
    ) -> None:
        self._keep = keep
        self._keep_batch = keep_batch

    def add_partial(self, attr: str, req: Iterable[Any], res: Any) -> None:
        if self._keep is not None:
            self._keep(attr, req, res)

    def add_batch(self, attr: str, reqs: Sequence[Any], ress: Sequence[Any]) -> None:
        """All at once is many times cheaper to write than one by one."""
        if self._keep_batch is not None:
            self._keep_batch(attr, reqs, ress)
        else:
            for req, res in zip(reqs, ress, strict=True):
                self.add_partial(attr, req, res)


class LM(abc.ABC):
    """A language model that answers the three kinds of request."""

    lockstep: bool = False
    """Whether several processes hold parts of the model, and so must ask the very same requests:
    then none is left out because one process finds its answer stored."""

    _run_context: RunContext | None = None

    def __init__(self) -> None:
        self._rank = 0
        self._world_size = 1
        self._device: Any = None
        self.cache_hook = CacheHook()

    @abc.abstractmethod
    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """For each `(context, continuation)`: log P(continuation | context), and whether greedy
        decoding from the context would have produced exactly the continuation.

        The context may be empty; the space between words belongs to the continuation.
        """

    @abc.abstractmethod
    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """For each `(text,)`: the log-probability of the whole text, every token counted once.

        Text longer than the model's window is read in windows; each text stands for itself.
        """

    @abc.abstractmethod
    def generate_until(self, requests: list[Instance]) -> list[str]:
        """For each `(context, settings)`: the text generated up to the first of
        `settings["until"]`, which is not part of the answer.
        """

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Turn `{"role", "content"}` messages into the kind of prompt the model was trained on."""
        raise NotImplementedError(
            f"{type(self).__name__} has no chat template: run without --apply_chat_template, "
            "or implement `apply_chat_template` in the model class."
        )

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises if the settings cannot work with this class, before anything is loaded.

        Called when the tasks are built and before the model is made. Override it to refuse, with a
        `ModelError` or `ConfigError`, what would otherwise fail only after a long load.

        Args:
            arguments: the `model_args` of the run.
            chat_template: whether the run applies a chat template, or the name of the one to use.
        """
        if chat_template and cls.apply_chat_template is LM.apply_chat_template:
            raise ModelError(
                f"{cls.__name__} has no chat template; run without --apply_chat_template."
            )

    @classmethod
    def create_from_arg_string(
        cls: type[Self], arg_string: str, additional_config: dict[str, Any] | None = None
    ) -> Self:
        """Make the model from `"key=value,key=value"`."""
        return cls.create_from_arg_obj(parse_arguments(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls: type[Self],
        arg_dict: dict[str, Any],
        additional_config: dict[str, Any] | None = None,
    ) -> Self:
        """Make the model from a dictionary of arguments; `None` among the extras means unset."""
        extras = {k: v for k, v in (additional_config or {}).items() if v is not None}
        return cls(**arg_dict, **extras)

    @property
    def device(self) -> Any:
        return self._device

    @device.setter
    def device(self, device: Any) -> None:
        self._device = device

    @property
    def rank(self) -> int:
        """Which of several cooperating processes this is."""
        return self._rank

    @property
    def world_size(self) -> int:
        """How many processes cooperate."""
        return self._world_size

    def all_gather(self, tensor: Any) -> Any:
        return tensor

    def gather_object(self, obj: Any, dst: int = 0) -> list[Any] | None:
        """Every process's object, in order of rank, on process `dst`; None on the others.

        Processes that torch has connected, as `accelerate launch` does, need no more than this.
        """
        connected = connection()
        if self.world_size <= 1 or connected is None:
            return [obj]
        found: list[Any] | None = [None] * self.world_size if self.rank == dst else None
        connected.gather_object(obj=obj, object_gather_list=found, dst=dst)
        return found

    def barrier(self) -> None:
        """Wait until all processes have come here."""
        connected = connection()
        if self.world_size > 1 and connected is not None:
            connected.barrier()

    @property
    def tokenizer_name(self) -> str:
        """What the tokenizer and its chat template are called, to tell their prompts apart."""
        raise NotImplementedError(
            f"{type(self).__name__} must define `tokenizer_name` to be used with chat templates."
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The text of the chat template in use, to be kept with the results."""
        return ""

    def usage(self) -> dict[str, int]:
        """What the model has been through so far, for the results; override to tell.

        `tokens_in` it was given and `tokens_out` it wrote, `tokens_shared` of those given that
        were not computed because another request had them, `truncated` requests that did not fit
        its window, `failed` requests that got no answer. What is not known is left out.
        """
        return {}

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        self.cache_hook = cache_hook

    @property
    def run_context(self) -> RunContext:
        """The context of the evaluation under way; a default one outside of any."""
        if self._run_context is None:
            self._run_context = RunContext()
        return self._run_context

    def set_run_context(self, context: RunContext | None) -> None:
        """Called before an evaluation's first request, and with None after its last."""
        self._run_context = context

    @property
    def run_seed(self) -> int | None:
        """The run's seed; short for `run_context.seed`."""
        return self.run_context.seed

    @run_seed.setter
    def run_seed(self, seed: int | None) -> None:
        self._run_context = replace(self.run_context, seed=seed)


def move_spaces(context: str, continuation: str) -> tuple[str, str]:
    """Move spaces at the end of the context to the continuation, where tokenizers expect them."""
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def split_pair(whole: list[int], context: list[int], prefix: int) -> tuple[list[int], list[int]]:
    """Split jointly encoded tokens where the context's tokens end.

    Without a context the prefix token takes its place, unless the text begins with it already.
    """
    if context:
        return context, whole[len(context) :]
    if whole and whole[0] == prefix:
        return whole[:1], whole[1:]
    return [prefix], whole


class TemplateLM(LM):
    """A model with a tokenizer of its own: it scores token lists, this class makes them.

    `_loglikelihood_tokens` gets `((context, continuation), context tokens, continuation tokens)`.
    """

    tokenizer: Any = None
    backend = "causal"

    @property
    @abc.abstractmethod
    def eot_token_id(self) -> int: ...

    @property
    def prefix_token_id(self) -> int:
        """The token that stands before a text which has no context."""
        return self.eot_token_id

    @abc.abstractmethod
    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]: ...

    @abc.abstractmethod
    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]: ...

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Tokenize context and continuation together and split where the context's tokens end.

        Spaces at the end of the context move to the continuation, where tokenizers expect them.
        """
        context, continuation = move_spaces(context, continuation)
        if self.backend == "causal":
            whole = self.tok_encode(context + continuation)
            return split_pair(whole, self.tok_encode(context), self.prefix_token_id)
        return (
            self.tok_encode(context),
            self.tok_encode(continuation, add_special_tokens=False),
        )

    def _encode_request(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        if context:
            return self._encode_pair(context, continuation)
        tokens = self.tok_encode(continuation, add_special_tokens=False)
        return split_pair(tokens, [], self.prefix_token_id)

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        encoded = [
            ((context, continuation), *self._encode_request(context, continuation))
            for context, continuation in (request.args for request in requests)
        ]
        return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """The tokenizer's template, or the one of that name where it has several."""
        if self.tokenizer is None:
            return ""
        if chat_template is False or chat_template is None:
            return None
        return choose_template(getattr(self.tokenizer, "chat_template", None), chat_template)


def choose_template(templates: Any, wanted: bool | str) -> str | None:
    """The chat template of that name, or the default one, of those that a tokenizer has."""
    if not isinstance(templates, Mapping):
        if isinstance(wanted, str):
            logger.warning(
                "The tokenizer has a single chat template; the name %r is ignored.", wanted
            )
        return None if templates is None else str(templates)
    name = wanted if isinstance(wanted, str) else "default"
    if name not in templates:
        raise ModelError(
            f"the tokenizer has no chat template {name!r}; it has: {', '.join(sorted(templates))}."
        )
    return str(templates[name])
