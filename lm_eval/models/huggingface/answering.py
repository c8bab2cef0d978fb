"""Answers generation requests: makes prompts of them, batches the prompts and chooses the loop.

There are two generation loops: the built-in one (`generation.py`), and `generate` of transformers
for models and settings that the built-in loop does not support.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lm_eval.api.instance import Completion, Instance
from lm_eval.api.usage import Usage
from lm_eval.config.generation import MAX_LENGTH_NAMES
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import (
    Generation,
    answer_rng,
    cut_at_stop,
    max_context_tokens,
    read_generation,
    repeat_numbers,
    task_of,
)
from lm_eval.models.huggingface.attention import AttentionKernels
from lm_eval.models.huggingface.batch_compatibility import BatchCompatibility
from lm_eval.models.huggingface.batches import (
    generate_in_batches,
    generate_within_memory,
    repeats_in_order,
)
from lm_eval.models.huggingface.continuous_batching import ContinuousBatch, Decoding
from lm_eval.models.huggingface.generation import Prompt, WrittenAnswer, generate
from lm_eval.models.huggingface.lookup_decoding import generate_with_lookup
from lm_eval.models.huggingface.memory import TokenBudget
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.request_errors import NaNScoresError
from lm_eval.models.huggingface.thought_budget import (
    ThoughtBudget,
    Tokens,
    generate_within_budget,
)
from lm_eval.models.partial_answers import DecodeMany, StopConditions
from lm_eval.models.thinking import count_until_mark, split_thought

#: Settings that the built-in loop supports; with any other, transformers generates.
SUPPORTED_SETTINGS = {*MAX_LENGTH_NAMES, "until", "do_sample", "temperature", "top_k", "top_p"}
#: Model defaults that change even greedy answers, with the values that have no effect.
NEUTRAL_DEFAULTS = {
    "repetition_penalty": (None, 1.0),
    "no_repeat_ngram_size": (None, 0),
    "num_beams": (None, 1),
    "min_length": (None, 0),
    "min_new_tokens": (None, 0),
    "suppress_tokens": (None, []),
    "begin_suppress_tokens": (None, []),
    "bad_words_ids": (None, []),
    "forced_bos_token_id": (None,),
    "forced_eos_token_id": (None,),
    "sequence_bias": (None,),
    "guidance_scale": (None, 1.0),
    "encoder_repetition_penalty": (None, 1.0),
    "exponential_decay_length_penalty": (None,),
    "stop_strings": (None, []),
    "watermarking_config": (None,),
    "dola_layers": (None,),
}
#: Settings that are rejected, because they change what transformers returns; and the remedy.
REJECTED_SETTINGS = {
    "num_return_sequences": "to get several answers per request, set `repeats` in the task",
    "return_dict_in_generate": "only the generated text is used; remove the setting",
    "stop": "use `until` for stop strings",
}
#: Model defaults that change sampled answers, with the values that have no effect.
NEUTRAL_SAMPLING_DEFAULTS = {
    "min_p": (None, 0.0),
    "typical_p": (None, 1.0),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
    "top_h": (None,),
}
LOOKUP_DEVICES = ("cpu",)
"""Device types on which greedy answers are generated with guesses (`lookup_decoding.py`)."""
Loop = Callable[[Generation, StopConditions, list[Prompt]], Iterator[tuple[int, WrittenAnswer]]]
"""A generation loop: yields the index of each request of a batch, and the answer to it."""
DEFAULT_TOP_K = 50
"""The `top_k` with which transformers samples if neither the request nor the model sets it."""


@dataclass(frozen=True)
class TextModel:
    """The properties of a model and its tokenizer that both generation loops need."""

    encode: Callable[[Iterable[str]], Mapping[str, list[int]]]
    """Returns a mapping from each context to its tokens, at least one."""
    decode: Callable[..., str]
    """Returns the text of some tokens; accepts `skip_special_tokens`."""
    batch_decoder: Callable[[], DecodeMany]
    """Returns a function from several rows of tokens to their texts, without special tokens. It is
    found by trials, so only loops that need it ask for it."""
    causal: bool
    max_length: int
    max_gen_toks: int
    truncation_side: str
    end_token: int | None
    special_tokens: Mapping[str, int]
    """The indices of the tokens that are left out of decoded text, by their text."""
    think_end_token: str | int | None
    """What ends a thought: a token, or a text that is no special token (which texts lack)."""
    thought_budget: ThoughtBudget | None
    """After how many tokens a thought is cut; None for no limit."""
    defaults: Any
    """The model's `generation_config`; None if it has none."""
    device: torch.device


@dataclass(frozen=True)
class BuiltinLoop:
    """What the built-in generation loop needs to run a model."""

    network: Network
    attention_kernels: AttentionKernels
    budget: TokenBudget
    max_length: int | None
    """The maximum number of tokens of prompt and answer together; None for no limit."""
    decoding: Decoding | None = None
    """How tokens are decoded with continuous batching; None if each batch ends before the next."""
    max_rows: int = 1
    """With continuous batching, the maximum number of answers at a time."""


@dataclass(frozen=True)
class TransformersLoop:
    """Generation by transformers, or by a subclass's `_model_generate`."""

    generate: Callable[..., Tensor]
    """`HFLM._model_generate`."""
    compatibility: Callable[[list[Prompt]], BatchCompatibility]
    """Returns which of the given prompts, sorted by length, may share a batch."""
    pad_token: int
    name: str
    """The name of the model class, for error messages."""


class Generator:
    """Answers generation requests with one model."""

    def __init__(
        self,
        model: TextModel,
        builtin: BuiltinLoop | None,
        transformers: TransformersLoop,
        *,
        answers_per_batch: Callable[[int], int],
        seed: int,
        usage: Usage,
    ) -> None:
        """Stores what is needed to generate.

        Args:
            model: the properties of the model and its tokenizer.
            builtin: the built-in loop; None if it is not exact on this model.
            transformers: the loop for everything that the built-in loop does not support.
            answers_per_batch: returns how many answers fit into one batch, given the number of
                tokens of prompt and answer together.
            seed: the seed of all random numbers.
            usage: counts tokens and truncated requests.
        """
        self.model = model
        self.builtin = builtin
        self.transformers = transformers
        self.answers_per_batch = answers_per_batch
        self.seed = seed
        self.usage = usage

    def answer(
        self, requests: list[Instance], in_order: bool = True
    ) -> Iterator[tuple[int, Completion]]:
        """Yields the index of each request in `requests` and its answer, as soon as it is finished.

        With `in_order`, those of the repeats of a prompt wait for the repeats before them.
        Requests with the same generation settings are processed together. If `max_gen_toks` is 0,
        the answer is empty. Raises `ConfigError` for invalid settings, and `ModelError` if the
        answer leaves no room for a context or the model's scores are NaN.
        """
        encoded = self.model.encode(request.args[0] for request in requests)
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            check_settings(request.args[1], request)
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        for numbers in groups.values():
            gen_kwargs: Mapping[str, Any] = requests[numbers[0]].args[1]
            settings = self._parse_settings(gen_kwargs)
            if settings.max_gen_toks < 1:
                yield from ((number, Completion("", None, "length", 0)) for number in numbers)
                continue
            prompts = self._make_prompts(requests, numbers, encoded, settings)
            builtin = self._loop_supporting(gen_kwargs, prompts, settings)
            loop: Loop
            following: Loop | None = None
            if builtin is not None and builtin.decoding is not None:
                loop = following = partial(self._generate_continuously, builtin)
                compatibility: BatchCompatibility = "any"
            elif builtin is not None:
                loop, compatibility = partial(self._generate_by_builtin_loop, builtin), "any"
            else:
                loop = partial(self._generate_by_transformers, gen_kwargs)
                compatibility = self._compatibility(prompts, settings)
            if following is not None:  # it forms the batches itself
                found = self._answer_batch(loop, following, settings, gen_kwargs, prompts)
            else:
                following = partial(self._in_batches, loop, compatibility)
                batch = partial(self._answer_batch, loop, following, settings, gen_kwargs)
                found = generate_in_batches(
                    batch, prompts, settings, self.answers_per_batch, compatibility
                )
            try:
                groups_of = [prompt.requests for prompt in prompts]
                yield from repeats_in_order(found, groups_of) if in_order else found
            except NaNScoresError as error:
                raise error.for_request(requests[error.request_index]) from error

    def _parse_settings(self, gen_kwargs: Mapping[str, Any]) -> Generation:
        """Returns the generation settings, with the model's own `top_k` and `top_p` as defaults.

        If the model has no `top_k` either, it is 50, as in transformers. Raises `ConfigError` if
        `until` is neither a string nor a list of strings.
        """
        default = getattr(self.model.defaults, "top_k", None)
        defaults = {"top_k": DEFAULT_TOP_K if default is None else default}
        if (top_p := getattr(self.model.defaults, "top_p", None)) is not None:
            defaults["top_p"] = top_p
        return read_generation({**defaults, **gen_kwargs}, self.model.max_gen_toks)

    def _make_prompts(
        self,
        requests: list[Instance],
        numbers: list[int],
        encoded: Mapping[str, list[int]],
        settings: Generation,
    ) -> list[Prompt]:
        """Returns the distinct contexts of some requests as prompts, the longest first.

        Contexts that leave too little room for the answer are truncated and counted in `usage`.
        Raises `ModelError` if the answer leaves no room for any context.

        Args:
            requests: all requests.
            numbers: the indices of the requests to use.
            encoded: the tokens of each context.
            settings: the generation settings, which these requests have in common.
        """
        model = self.model
        room = model.max_length
        if model.causal:
            room = max_context_tokens(settings, model.max_length, requests[numbers[0]])
        requests_of: dict[str, list[int]] = {}
        for i in numbers:
            requests_of.setdefault(requests[i].args[0], []).append(i)
        prompts = []
        for text, indices in requests_of.items():
            tokens = encoded[text]
            if len(tokens) > room:
                self.usage.truncated.update(task_of(requests[i]) for i in indices)
                tokens = tokens[-room:] if model.truncation_side == "left" else tokens[:room]
            repeats = repeat_numbers([requests[i] for i in indices])
            prompts.append(Prompt(text, tokens, tuple(indices), repeats))
        # The longest first, so that a lack of memory shows at once.
        return sorted(prompts, key=lambda prompt: (-len(prompt.tokens), prompt.text))

    def _loop_supporting(
        self, gen_kwargs: Mapping[str, Any], prompts: list[Prompt], settings: Generation
    ) -> BuiltinLoop | None:
        """Returns the built-in loop if it supports these settings, prompts and model defaults.

        Otherwise returns None: transformers must generate.
        """
        builtin = self.builtin
        if builtin is None or set(gen_kwargs) - SUPPORTED_SETTINGS:
            return None
        longest = len(prompts[0].tokens) + settings.max_gen_toks
        if builtin.max_length is not None and longest > builtin.max_length:
            return None
        neutral = {**NEUTRAL_DEFAULTS, **(NEUTRAL_SAMPLING_DEFAULTS if settings.sampled else {})}
        default = self.model.defaults
        no_effect = all(getattr(default, name, None) in values for name, values in neutral.items())
        return builtin if no_effect else None

    def _stop_conditions(
        self, settings: Generation, gen_kwargs: Mapping[str, Any]
    ) -> StopConditions:
        """Returns what ends an answer according to the request, the model and its tokenizer.

        These are the end-of-text tokens, the stop strings (`until` and `stop_strings`), the special
        tokens among them, and the text of the end-of-text token.
        """
        model = self.model
        ends = gen_kwargs.get("eos_token_id", getattr(model.defaults, "eos_token_id", None))
        tokens = {model.end_token, *(ends if isinstance(ends, list) else [ends])}
        # Special tokens are left out of decoded text, so stop strings that are special tokens are
        # searched for among the tokens.
        tokens |= {token for text, token in model.special_tokens.items() if text in settings.until}
        # Models can also write the text of the end-of-text token with ordinary tokens.
        end = (
            ""
            if model.end_token is None
            else model.decode(model.end_token, skip_special_tokens=False)
        )
        others = (
            gen_kwargs.get("stop_strings") or getattr(model.defaults, "stop_strings", None) or ()
        )
        stops = (*settings.until, *([others] if isinstance(others, str) else others), end)
        return StopConditions(
            frozenset(t for t in tokens if t is not None), tuple(stop for stop in stops if stop)
        )

    def _in_batches(
        self,
        loop: Loop,
        compatibility: BatchCompatibility,
        settings: Generation,
        stop_conditions: StopConditions,
        prompts: list[Prompt],
    ) -> Iterator[tuple[int, WrittenAnswer]]:
        """Yields the request index and the answer to each request, generated batch by batch."""
        batch = partial(loop, settings, stop_conditions)
        return generate_in_batches(batch, prompts, settings, self.answers_per_batch, compatibility)

    def _answer_batch(
        self,
        loop: Loop,
        following: Loop,
        settings: Generation,
        gen_kwargs: Mapping[str, Any],
        prompts: list[Prompt],
    ) -> Iterator[tuple[int, Completion]]:
        """Yields the request index and the answer for each request of a batch of prompts.

        Thoughts are cut if the model has a budget for them. `loop` generates; `following` continues
        answers whose thoughts were cut. `settings` were parsed from `gen_kwargs`.
        """
        stops, budget = self._stop_conditions(settings, gen_kwargs), self.model.thought_budget
        # Stop strings do not count in thoughts: the answer is cut at them afterwards.
        thinks = self.model.think_end_token is not None
        early = replace(stops, stops=self._end_texts(gen_kwargs)) if thinks else stops
        if budget is None:
            for number, answer in loop(settings, early, prompts):
                is_longest = len(answer.tokens) >= settings.max_gen_toks
                yield number, self._completion(answer, stops, is_longest)
            return

        def second_step(rest: Generation, cut: list[Prompt]) -> Tokens:
            return ((number, answer.tokens) for number, answer in following(rest, stops, cut))

        def first_step(first: Generation, some: list[Prompt]) -> Tokens:
            return ((number, answer.tokens) for number, answer in loop(first, early, some))

        for number, tokens, added, is_longest in generate_within_budget(
            budget, settings, prompts, self._contain_mark, first_step, second_step
        ):
            yield number, self._completion(WrittenAnswer(tokens), stops, is_longest, added)

    def _end_texts(self, gen_kwargs: Mapping[str, Any]) -> tuple[str, ...]:
        """Returns the stop strings that apply in thoughts, too: the text of the end token."""
        return self._stop_conditions(Generation(), {**gen_kwargs, "stop_strings": ()}).stops

    def _contain_mark(self, tokens: list[int]) -> bool:
        """Returns whether an answer contains the end of a thought.

        A mark of several tokens is looked for in the text, since a model may write the same text
        with other tokens than the tokenizer.
        """
        mark = self.model.think_end_token
        if isinstance(mark, int):
            return mark in tokens
        return mark is not None and mark in self.model.decode(tokens)

    def _completion(
        self,
        written: WrittenAnswer,
        stop_conditions: StopConditions,
        is_longest: bool,
        added: int = 0,
    ) -> Completion:
        """Returns the answer in what was generated: the text after the thought, cut at stops.

        If the model has a `think_end_token`, what comes before its last occurrence is the thought,
        so stop strings inside it do not count, and whitespace after it is removed. Without an
        occurrence, the whole text is the answer.

        Args:
            written: the thought and the answer.
            stop_conditions: what ends an answer.
            is_longest: whether the maximum number of tokens was generated.
            added: how many of the tokens were not generated, but appended to a cut thought.
        """
        model, mark = self.model, self.model.think_end_token
        tokens, whole = written
        if whole is None:
            tokens = stop_conditions.truncate(tokens)
        thought, count, rest = "", 0, tokens
        if isinstance(mark, int):
            count = len(tokens) - tokens[::-1].index(mark) if mark in tokens else 0
            thought, rest = model.decode(tokens[:count][:-1]).strip(), tokens[count:]
            text = model.decode(rest).lstrip()
        else:
            thought, text = split_thought(model.decode(tokens) if whole is None else whole, mark)
            if thought and mark is not None:
                count = count_until_mark(model.decode, tokens, mark)
        answer = cut_at_stop(text, stop_conditions.stops)
        is_cut = is_longest and answer == text
        return Completion(
            answer,
            thought or None,
            "length" if is_cut else "stop",
            len(tokens) - added,
            count - added if thought else None,
        )

    # -- the built-in loop -----------------------------------------------------------------------

    def _generate_by_builtin_loop(
        self,
        builtin: BuiltinLoop,
        settings: Generation,
        stop_conditions: StopConditions,
        prompts: list[Prompt],
    ) -> Iterator[tuple[int, WrittenAnswer]]:
        """Yields the request index and the answer to each request of a batch.

        Requests with the same prompt share one greedy answer; if `settings.sampled`, each gets its
        own. Raises `NaNScoresError` if logits are NaN.
        """
        loop: Callable[..., Iterator[tuple[int, WrittenAnswer]]] = partial(generate, seed=self.seed)
        if self.model.device.type in LOOKUP_DEVICES and not settings.sampled:
            loop = generate_with_lookup
        return loop(
            builtin.network,
            self.model.decode,
            prompts,
            settings,
            stop_conditions,
            device=self.model.device,
            max_tokens=builtin.budget.tokens,
            attention_kernels=builtin.attention_kernels,
            usage=self.usage,
        )

    def _generate_continuously(
        self,
        builtin: BuiltinLoop,
        settings: Generation,
        stop_conditions: StopConditions,
        prompts: list[Prompt],
    ) -> Iterator[tuple[int, WrittenAnswer]]:
        """Yields the request index and the answer to each request of some prompts.

        Like `_generate_by_builtin_loop`, but with continuous batching: `prompts` may be more than
        fit into a batch.
        """
        decoding = builtin.decoding
        assert decoding is not None

        def within(some: list[Prompt], max_rows: int) -> Iterator[tuple[int, WrittenAnswer]]:
            batch = ContinuousBatch(
                builtin.network,
                self.model.decode,
                some,
                settings,
                stop_conditions,
                seed=self.seed,
                device=self.model.device,
                max_tokens=builtin.budget.tokens,
                max_rows=max_rows,
                attention_kernels=builtin.attention_kernels,
                decoding=decoding,
                usage=self.usage,
                decode_many=self.model.batch_decoder(),
            )
            found: Iterator[tuple[int, WrittenAnswer]] = batch.run()
            return found

        return generate_within_memory(within, prompts, settings, builtin.max_rows)

    # -- transformers ----------------------------------------------------------------------------

    def _compatibility(self, prompts: list[Prompt], settings: Generation) -> BatchCompatibility:
        """Returns which of the prompts may share a batch if transformers generates.

        "any" means prompts of any lengths, "equal" only prompts of equal length, and "none" that
        each prompt has a batch of its own. It is "any" for encoder-decoder models and for a single
        answer.
        """
        if not self.model.causal or sum(p.num_answers(settings) for p in prompts) == 1:
            return "any"
        return self.transformers.compatibility(prompts)

    def _generate_by_transformers(
        self,
        gen_kwargs: Mapping[str, Any],
        settings: Generation,
        stop_conditions: StopConditions,
        prompts: list[Prompt],
    ) -> Iterator[tuple[int, WrittenAnswer]]:
        """Yields the request index and the answer to each request of a batch.

        Requests with the same prompt share one greedy answer; if `settings.sampled`, each gets its
        own. `settings` were parsed from `gen_kwargs`, the rest of which is passed to transformers.
        Raises `NaNScoresError` if logits are NaN, and `ModelError` if a subclass's
        `_model_generate` does not return as many rows as it was given.
        """
        model, loop = self.model, self.transformers
        rows = [p for p in prompts for _ in range(p.num_answers(settings))]
        width = max(len(p.tokens) for p in rows)
        context = torch.full((len(rows), width), loop.pad_token, device=model.device)
        mask = torch.zeros_like(context)
        for r, prompt in enumerate(rows):
            context[r, width - len(prompt.tokens) :] = torch.tensor(prompt.tokens)
            mask[r, width - len(prompt.tokens) :] = 1
        extras = {k: v for k, v in gen_kwargs.items() if k not in {*MAX_LENGTH_NAMES, "until"}}
        extras["do_sample"] = settings.sampled
        extras["temperature"] = settings.temperature
        limit = extras.pop("max_length", settings.max_gen_toks + (width if model.causal else 1))
        try:
            with self._seeded(prompts[0], settings):
                made = loop.generate(
                    context=context,
                    attention_mask=mask,
                    max_length=limit,
                    stop=list(stop_conditions.stops),
                    **extras,
                ).tolist()
        except NaNScoresError as error:
            raise NaNScoresError(rows[error.request_index].requests[0]) from error
        read = sum(len(p.tokens) * len(p.requests) for p in prompts)
        self.usage.count_prompt(read, sum(len(p.tokens) for p in rows))
        if len(made) != len(rows):
            raise ModelError(
                f"{loop.name}._model_generate returned {len(made)} answers to {len(rows)} "
                "prompts; it must return one answer per prompt."
            )
        r = 0
        for prompt in prompts:
            for number in prompt.requests:
                row = stop_conditions.truncate(made[r][width:] if model.causal else made[r][1:])
                self.usage.count_answer(len(row))
                self.usage.count_generated(len(row))
                yield number, WrittenAnswer(row)
                r += settings.sampled
            r += not settings.sampled

    @contextmanager
    def _seeded(self, first: Prompt, settings: Generation) -> Iterator[None]:
        """Seeds torch inside the `with` block if answers are sampled, and restores its state.

        The seed depends on the first prompt, so that the same batch gets the same answers in every
        run.
        """
        if not settings.sampled:
            yield
            return
        device = self.model.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            drawn = answer_rng(self.seed, first.text, settings, first.repeat(0))
            torch.manual_seed(int(drawn.integers(1 << 62)))
            yield


def check_settings(gen_kwargs: Mapping[str, Any], request: Instance) -> None:
    """Raises `ConfigError` for generation settings that are not a mapping, or not supported.

    Not supported are `num_return_sequences` other than 1, `return_dict_in_generate` and `stop`. The
    message names the task of `request`.
    """
    if not isinstance(gen_kwargs, Mapping):
        raise ConfigError(
            f"task {task_of(request)!r}: generation settings must be a dictionary, not "
            f"{gen_kwargs!r}. Check generation_kwargs in the task and --gen_kwargs."
        )
    for name, instead in REJECTED_SETTINGS.items():
        if (value := gen_kwargs.get(name)) is True or value not in (None, False, 1):
            raise ConfigError(
                f"task {task_of(request)!r}: the generation setting {name} is not supported: "
                f"{instead}."
            )
