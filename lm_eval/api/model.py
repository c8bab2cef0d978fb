"""`LM` and `TemplateLM`, the base classes of models that can be evaluated.

A model takes text and returns text or log-probabilities; only the model class deals with tokens.
Names and signatures are those of the published harness, whose model classes run unchanged.
"""

from __future__ import annotations

import abc
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from lm_eval._lazy import lazy_exports
from lm_eval.api.context import RunContext
from lm_eval.config.arguments import parse_arguments
from lm_eval.errors import ModelError
from lm_eval.launch import torch_distributed

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

logger = logging.getLogger(__name__)

T = TypeVar("T", bound="LM")

# Imported on first use, because it needs the answer store.
__getattr__, _ = lazy_exports(__name__, {"CachingLM": "lm_eval.models.caching"})


class CacheHook:
    """Callback through which a model reports answers as soon as it has them.

    Reported answers are stored at once, so that an interrupted run does not lose them. Reporting is
    optional: if the list that the model returns in the end differs, the returned list takes
    precedence. The evaluation sets `self.cache_hook` before it calls the model; outside an
    evaluation the hook does nothing.

    Example, inside `generate_until`::

        self.cache_hook.add_partial("generate_until", request.args, answer)

    Args:
        on_answer: called by `add_partial` with (request type, arguments of the request, answer).
        on_batch: called by `add_batch` with (request type, list of arguments, list of answers);
            without it, `on_answer` is called for each answer.
        on_positions: called by `add_at` with (request type, list of positions, list of answers).
    """

    def __init__(
        self,
        on_answer: Callable[[str, Any, Any], None] | None = None,
        on_batch: Callable[[str, Sequence[Any], Sequence[Any]], None] | None = None,
        on_positions: Callable[[str, Sequence[int], Sequence[Any]], None] | None = None,
    ) -> None:
        self._on_answer = on_answer
        self._on_batch = on_batch
        self._on_positions = on_positions

    @property
    def takes_positions(self) -> bool:
        """Whether `add_at` may be called, so that repeats can be reported in any order."""
        return self._on_positions is not None

    def add_at(self, attr: str, positions: Sequence[int], ress: Sequence[Any]) -> None:
        """Reports answers by the positions of their requests in the list that the model got.

        Unlike the arguments of a request, a position also tells which of its repeats is answered.
        `attr` is the request type. Only if `takes_positions`.
        """
        if self._on_positions is not None:
            self._on_positions(attr, positions, ress)

    def add_partial(self, attr: str, req: Iterable[Any], res: Any) -> None:
        """Reports one answer to `on_answer`; does nothing if there is no such callback.

        Args:
            attr: the request type: "loglikelihood", "loglikelihood_rolling" or "generate_until".
            req: the arguments of the request (`Instance.args`).
            res: the answer, as the model returns it for this request.
        """
        if self._on_answer is not None:
            self._on_answer(attr, req, res)

    def add_batch(self, attr: str, reqs: Sequence[Any], ress: Sequence[Any]) -> None:
        """Reports the answers `ress` to requests with the arguments `reqs`, in the same order.

        `attr` is the request type. Calls `on_batch` once, which is many times cheaper than storing
        the answers one by one. Without `on_batch`, calls `add_partial` for each answer.
        """
        if self._on_batch is not None:
            self._on_batch(attr, reqs, ress)
        else:
            for req, res in zip(reqs, ress, strict=True):
                self.add_partial(attr, req, res)


@dataclass(frozen=True)
class LengthCheck:
    """How to find requests that do not fit into the context of a model that is not loaded yet.

    Attributes:
        encoder: a model without weights that formats prompts as the loaded one will.
        needed: returns the context length that each of the requests needs.
        limit: the context length that the user chose.
        argument: the name of the model argument with which it was chosen.
        remedy: what to pass if prompts should be cut instead, for the message.
    """

    encoder: LM
    needed: Callable[[Sequence[Instance]], Sequence[int]]
    limit: int
    argument: str
    remedy: str


class LM(abc.ABC):
    """Base class of models: answers the three types of requests.

    A subclass implements `loglikelihood`, `loglikelihood_rolling` and `generate_until`. During an
    evaluation each is called at most once per process, with all requests of its type whose answers
    are not stored yet, from all tasks together. The same request may occur several times in the
    list (repeats). Each method returns a list with one answer per request, in the order of the
    requests, or yields the answers one after the other. A request that the model cannot answer may
    be answered with a `Failure`; an exception ends the run.

    Methods that a subclass may override: `apply_chat_template` and `tokenizer_name` for
    `--apply_chat_template`, `usage` for token counts in the results, and `check_before_loading` to
    reject arguments early.

    Optional methods and attributes. This class does not define them, except `lockstep`; the
    evaluation uses those that a subclass defines (docs/models.md):

    - `identity()`: returns a dictionary of what affects the answers, which is compared in place of
      the source of the class. Stored answers are used only for a model with an equal dictionary,
      equal arguments, and equal files that the arguments name.
    - `get_model_info()`: returns a dictionary that is saved in `config` of the results, and is also
      compared before stored answers are used.
    - `answer_settings()`: returns a dictionary of the settings, other than the weights, that affect
      the answers. Compared for a model that is passed as an object, in place of its arguments.
    - `lockstep`: True if several processes each hold a part of the model.
    - `stand_in`: True for a model that stands in for a real one in tests. `lm_eval.check_model`
      then does not check whether its answers are consistent, or the same on each call.
    - `think_end_token`: the string that ends the model's thinking text, which is removed before an
      answer is filtered. A task may set another one.
    - `MULTIMODAL`: True if the model accepts images or audio; tasks that contain them need it.
    - `_encode_pair(context, continuation)`: returns the tokens of both; needed by metrics that
      count tokens, such as `acc_tokens`. `TemplateLM` implements it.
    - `tokenizer`, `eot_token_id`, `max_length`, `batch_sizes`: saved in the results.
    - `model`: the torch module. Its weights are hashed for a model that is passed as an object and
      has no `identity`.

    Example::

        @register_model("echo")
        class EchoLM(LM):
            def loglikelihood(self, requests):
                return [(-float(len(request.args[1])), False) for request in requests]

            def loglikelihood_rolling(self, requests):
                return [-float(len(request.args[0])) for request in requests]

            def generate_until(self, requests):
                return [request.args[0] for request in requests]
    """

    lockstep: bool = False
    """True if several processes each hold a part of the model. Every process then gets the same
    requests, including those with stored answers, because a process that skipped one would leave
    the others waiting."""

    # For subclasses that do not call the constructor: rank 0 of 1 process, an inactive cache hook.
    _run_context: RunContext | None = None
    _rank: int = 0
    _world_size: int = 1
    _device: Any = None
    cache_hook = CacheHook()

    def __init__(self) -> None:
        """Sets rank 0 of 1 process and an inactive cache hook; subclasses should call it."""
        self._rank = 0
        self._world_size = 1
        self._device = None
        self.cache_hook = CacheHook()

    @abc.abstractmethod
    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        """Returns the log-likelihood of each continuation given its context.

        Args:
            requests: `request.args` is `(context, continuation)`. The context may be empty. A space
                between the two is part of the continuation: `("The sky is", " blue")`.

        Returns:
            For each request `(log_likelihood, is_greedy)`: log P(continuation | context), summed
            over the tokens of the continuation (natural logarithm), and whether greedy decoding
            from the context would produce exactly the continuation.
        """

    @abc.abstractmethod
    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        """Returns the log-likelihood of each text as a whole, for perplexities.

        Args:
            requests: `request.args` is `(text,)`.

        Returns:
            For each request the sum of the log-probabilities of all tokens of the text, each token
            counted once. A text longer than the context length of the model is split into windows
            (`lm_eval.models.utils` and `lm_eval.utils.get_rolling_token_windows` help).
        """

    @abc.abstractmethod
    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Returns the text that the model generates after each context.

        Args:
            requests: `request.args` is `(context, settings)`. `settings` is a dictionary with the
                stop strings `until`, the maximum length `max_gen_toks`, `do_sample`,
                `temperature` and other generation settings; any may be missing.

        Returns:
            For each request the generated text without the context. It ends before the first stop
            string, which is not included.
        """

    def apply_chat_template(
        self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True
    ) -> str:
        """Returns a chat as one prompt string, in the format that the model was trained on.

        Called while requests are built, if the run uses `--apply_chat_template`. The base class
        raises `NotImplementedError`.

        Args:
            chat_history: the messages, `{"role": "system" | "user" | "assistant", "content": …}`.
            add_generation_prompt: whether the prompt ends with the header of a new assistant
                message. If False, the model continues the last message of the chat.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no chat template. Run without --apply_chat_template, "
            "or implement `apply_chat_template` in the model class."
        )

    @classmethod
    def check_before_loading(
        cls, arguments: Mapping[str, Any], chat_template: bool | str = False
    ) -> None:
        """Raises if the settings cannot work with this class, before weights are loaded.

        Called after the tasks are built and before the model is created. Override it to reject,
        with a `ModelError` or `ConfigError`, settings that would otherwise fail only after a long
        load. The base class raises `ModelError` if the run applies a chat template and the class
        does not implement `apply_chat_template`.

        Args:
            arguments: the `model_args` of the run.
            chat_template: whether the run applies a chat template, or the name of the template.
        """
        if chat_template:
            check_has_chat_template(cls)

    @classmethod
    def length_check(cls, arguments: Mapping[str, Any]) -> LengthCheck | None:
        """Returns how to find requests that do not fit, before weights are loaded; None for no way.

        Called after `check_before_loading`. Override it if the user can choose the context length,
        and requests that are longer should be refused instead of cut.

        Args:
            arguments: the `model_args` of the run.
        """
        return None

    @classmethod
    def create_from_arg_string(
        cls: type[T], arg_string: str, additional_config: dict[str, Any] | None = None
    ) -> T:
        """Returns a model created with the arguments in `arg_string`, `"key=value,key=value"`.

        A JSON object is accepted too, and `""` for no arguments. `additional_config` is explained
        at `create_from_arg_obj`. Raises `ConfigError` if `arg_string` cannot be parsed.
        """
        return cls.create_from_arg_obj(parse_arguments(arg_string), additional_config)

    @classmethod
    def create_from_arg_obj(
        cls: type[T],
        arg_dict: dict[str, Any],
        additional_config: dict[str, Any] | None = None,
    ) -> T:
        """Returns a model created with the keyword arguments `arg_dict`.

        `additional_config` contains further arguments (batch size, device); those with the value
        None are removed first. Raises `TypeError` if a remaining key is also in `arg_dict`, or if
        the constructor does not accept a key.
        """
        extras = {k: v for k, v in (additional_config or {}).items() if v is not None}
        return cls(**arg_dict, **extras)

    @property
    def device(self) -> Any:
        """The device that the model runs on, for example "cuda:0"; None if the class sets none."""
        return self._device

    @device.setter
    def device(self, device: Any) -> None:
        self._device = device

    @property
    def rank(self) -> int:
        """Index of this process, from 0, among those that share the requests; 0 if it is alone."""
        return self._rank

    @property
    def world_size(self) -> int:
        """Number of processes that share the requests between them; 1 if this process is alone."""
        return self._world_size

    def all_gather(self, tensor: Any) -> Any:
        """Returns `tensor` unchanged.

        A class that runs in several processes overrides it, to return the tensors of all processes
        concatenated in order of rank.
        """
        return tensor

    def gather_object(self, obj: Any, dst: int = 0) -> list[Any] | None:
        """Returns the objects of all processes in order of rank on rank `dst`, None on the others.

        Works with processes that are connected by `torch.distributed`, for example those started
        with `accelerate launch`; override it for others. A process that is alone or not connected
        gets `[obj]`.
        """
        connected = torch_distributed()
        if self.world_size <= 1 or connected is None:
            return [obj]
        found: list[Any] | None = [None] * self.world_size if self.rank == dst else None
        connected.gather_object(obj=obj, object_gather_list=found, dst=dst)
        return found

    def barrier(self) -> None:
        """Waits until all processes connected by `torch.distributed` have called this method.

        Returns at once if this process is alone or not connected.
        """
        connected = torch_distributed()
        if self.world_size > 1 and connected is not None:
            connected.barrier()

    @property
    def tokenizer_name(self) -> str:
        """Name of the tokenizer and its chat template; the base class raises `NotImplementedError`.

        Needed with `--apply_chat_template`, where prompts depend on the tokenizer.
        """
        raise NotImplementedError(
            f"{type(self).__name__} must define the property `tokenizer_name` to be used with "
            "--apply_chat_template."
        )

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Returns the source text of the chat template in use, which is saved with the results.

        The base class returns `""`: no template is known.

        Args:
            chat_template: whether the run applies a chat template, or the name of the template.
        """
        return ""

    def usage(self) -> dict[str, int]:
        """Returns token and request counts so far, which are saved with the results.

        The base class returns `{}`. Override it to report any of these keys
        (`self.run_context.usage` can count them): `tokens_in` (prompt tokens), `tokens_out`
        (generated tokens), `tokens_shared` (prompt tokens that were not computed because another
        request had the same prefix), `truncated` (requests that were too long and were cut) and
        `failed` (requests without an answer). Leave out what is not known.
        """
        return {}

    def cannot_measure(self, request_type: str) -> str | None:
        """Returns why this model cannot answer requests of a type; None if it can.

        Called for the request types of all tasks before the first request is built. Override it for
        models that do not support every type; the run then ends with the reason and the names of
        the tasks, before anything is computed.

        Args:
            request_type: "loglikelihood", "loglikelihood_rolling" or "generate_until".
        """
        return None

    @classmethod
    def never_measures(cls, request_type: str) -> str | None:
        """Returns why no model of this class can answer requests of a type; None if some can.

        Called before any dataset is loaded and the model is created. Override it together with
        `cannot_measure` if the class alone decides.

        Args:
            request_type: "loglikelihood", "loglikelihood_rolling" or "generate_until".
        """
        return None

    def set_cache_hook(self, cache_hook: CacheHook) -> None:
        """Sets the hook for reporting answers; called before and after each type of request."""
        self.cache_hook = cache_hook

    @property
    def run_context(self) -> RunContext:
        """The context of the current evaluation, or one with defaults outside an evaluation."""
        if self._run_context is None:
            self._run_context = RunContext()
        return self._run_context

    def set_run_context(self, context: RunContext | None) -> None:
        """Sets `run_context`; called before the first request, and with None after the last."""
        self._run_context = context

    @property
    def run_seed(self) -> int | None:
        """The seed of the run for sampled answers, or None; short for `run_context.seed`."""
        return self.run_context.seed

    @run_seed.setter
    def run_seed(self, seed: int | None) -> None:
        self._run_context = replace(self.run_context, seed=seed)


_NO_CODE = (lambda: None).__code__


def check_has_chat_template(kind: type) -> None:
    """Raises `ModelError` if the class `kind` inherits `apply_chat_template` from `LM`.

    A class that is not derived from `LM` is not checked, nor one whose `__init__` mentions the
    method, because it may set it on the instance.
    """
    inherited = getattr(kind, "apply_chat_template", None) is LM.apply_chat_template
    if inherited and not any(
        "apply_chat_template" in getattr(vars(base).get("__init__"), "__code__", _NO_CODE).co_names
        for base in kind.__mro__
    ):
        raise ModelError(
            f"{kind.__name__} has no chat template; run without --apply_chat_template, or "
            "implement `apply_chat_template` in the model class (docs/models.md has its arguments)."
        )


def move_spaces(context: str, continuation: str) -> tuple[str, str]:
    """Returns context and continuation, with whitespace moved from the one to the other.

    Whitespace at the end of the context is put before the continuation, because most tokenizers
    encode a space together with the word that follows it.
    """
    stripped = context.rstrip()
    return stripped, context[len(stripped) :] + continuation


def split_pair(whole: list[int], context: list[int], prefix: int) -> tuple[list[int], list[int]]:
    """Returns context tokens and continuation tokens, split from jointly encoded text.

    Args:
        whole: the tokens of context and continuation, encoded together.
        context: the tokens of the context alone. They are returned as they are, and the
            continuation is what remains of `whole` after as many tokens.
        prefix: the token that becomes the context if `context` is empty. If `whole` begins with it,
            that first token is the context; otherwise it is added.
    """
    if context:
        return context, whole[len(context) :]
    if whole and whole[0] == prefix:
        return whole[:1], whole[1:]
    return [prefix], whole


class TemplateLM(LM):
    """Base class of models with a tokenizer; implements `loglikelihood` on tokens.

    A subclass implements `eot_token_id`, `tok_encode`, `_loglikelihood_tokens`,
    `loglikelihood_rolling` and `generate_until`. This class encodes the requests.
    """

    tokenizer: Any = None
    """The tokenizer object, if there is one; `chat_template` reads its templates."""
    backend = "causal"
    """The kind of model: "causal", or "seq2seq" for encoder-decoder models."""

    @property
    @abc.abstractmethod
    def eot_token_id(self) -> int:
        """The id of the end-of-text token."""

    @property
    def prefix_token_id(self) -> int:
        """The id of the token used where the context is empty; by default end-of-text."""
        return self.eot_token_id

    @abc.abstractmethod
    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Returns the token ids of a text.

        Args:
            string: the text.
            add_special_tokens: whether to add special tokens such as beginning-of-text; None leaves
                it to the model class.
            kwargs: further settings of the model class.
        """

    @abc.abstractmethod
    def _loglikelihood_tokens(
        self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs: Any
    ) -> list[tuple[float, bool]]:
        """Returns `(log-likelihood, is greedy)` for each request, as `LM.loglikelihood` does.

        Args:
            requests: `((context, continuation), context tokens, continuation tokens)` each.
            kwargs: `disable_tqdm`, whether to hide the progress bar.
        """

    def _encode_pair(self, context: str, continuation: str) -> tuple[list[int], list[int]]:
        """Returns the tokens of context and continuation, encoded together and then split.

        Spaces at the end of the context are moved to the continuation first. A context without
        tokens becomes the prefix token (`split_pair`). With a `backend` other than "causal",
        context and continuation are encoded separately, and it stays empty.
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
        """Returns the tokens of context and continuation; the prefix token for an empty context.

        If the context is empty, the continuation is encoded without special tokens; if it begins
        with the prefix token, that token is moved to the context.
        """
        if context:
            return self._encode_pair(context, continuation)
        tokens = self.tok_encode(continuation, add_special_tokens=False)
        return split_pair(tokens, [], self.prefix_token_id)

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        """Returns `(log-likelihood, is_greedy)` for each request, as `LM.loglikelihood` does.

        Encodes the requests and calls `_loglikelihood_tokens`. `disable_tqdm` hides the progress
        bar.
        """
        encoded = [
            ((context, continuation), *self._encode_request(context, continuation))
            for context, continuation in (request.args for request in requests)
        ]
        return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        """Returns the source text of the tokenizer's chat template.

        Args:
            chat_template: False or None for a run without a template; True for the default
                template; the name of a template if the tokenizer has several.

        Returns:
            "" if the model has no `tokenizer` object, whatever `chat_template` is. None if the run
            uses no template, or the tokenizer has none. Raises `ModelError` if the tokenizer has
            several templates and none has this name.
        """
        if self.tokenizer is None:
            return ""
        if chat_template is False or chat_template is None:
            return None
        return choose_template(getattr(self.tokenizer, "chat_template", None), chat_template)


#: Our own version of a method that third-party code replaces on `TemplateLM` itself. Models that
#: encode many requests at once compare it with theirs.
ENCODE_PAIR = TemplateLM._encode_pair


def choose_template(templates: Any, wanted: bool | str) -> str | None:
    """Returns one of a tokenizer's chat templates; None if `templates` is None.

    Args:
        templates: the template, a dictionary of templates by name, or None.
        wanted: the name of the template; True for the one named "default".

    Raises `ModelError` if there are several templates and none has this name. A single template is
    returned for any value of `wanted`, with a warning if `wanted` is a name.
    """
    if not isinstance(templates, Mapping):
        if isinstance(wanted, str):
            logger.warning(
                "The tokenizer has no chat templates with names, so the name %r is ignored and its "
                "only template, if it has one, is used. Pass --apply_chat_template without a name.",
                wanted,
            )
        return None if templates is None else str(templates)
    name = wanted if isinstance(wanted, str) else "default"
    if name not in templates:
        raise ModelError(
            f"the tokenizer has no chat template {name!r}. Choose one of these with "
            f"--apply_chat_template NAME: {', '.join(sorted(templates))}."
        )
    return str(templates[name])
