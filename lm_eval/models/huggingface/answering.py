"""From generation requests to answers: prompts, batches, and which loop generates them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from lm_eval.api.instance import Instance
from lm_eval.api.usage import Usage
from lm_eval.config.generation import LENGTH_NAMES
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import (
    Generation,
    answered_before,
    cut_at_stop,
    read_generation,
    room_before,
    stream,
    task_of,
)
from lm_eval.models.huggingface.attention import Attend
from lm_eval.models.huggingface.batch_compatibility import BatchCompatibility
from lm_eval.models.huggingface.batches import in_batches, in_order
from lm_eval.models.huggingface.generation import Ending, Prompt, generate
from lm_eval.models.huggingface.memory import Budget
from lm_eval.models.huggingface.naming import NotANumberError
from lm_eval.models.huggingface.network import Network

#: Settings that our own loop supports; with any other, transformers generates.
KNOWN = {*LENGTH_NAMES, "until", "do_sample", "temperature", "top_k", "top_p"}
#: Model defaults that change even greedy answers, with the value that changes nothing.
NEUTRAL = {
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
#: Settings that are refused, because they change what is returned, with what to use instead.
REFUSED = {
    "num_return_sequences": "several answers to a request are `repeats` of its task",
    "return_dict_in_generate": "only the text is looked at",
    "stop": "stop strings are called `until`",
}
#: Model defaults that change sampled answers.
NEUTRAL_DRAWS = {
    "min_p": (None, 0.0),
    "typical_p": (None, 1.0),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
    "top_h": (None,),
}
DEFAULT_TOP_K = 50
"""What transformers samples from where neither request nor model says."""


@dataclass(frozen=True)
class TextModel:
    """What generation needs to know of a model and its tokenizer, whichever loop runs."""

    encode: Callable[[Iterable[str]], Mapping[str, list[int]]]
    """Returns the tokens of each context, at least one."""
    decode: Callable[..., str]
    """Returns the text of tokens; takes `skip_special_tokens`."""
    causal: bool
    max_length: int
    max_gen_toks: int
    truncation_side: str
    end_token: int | None
    special_tokens: Mapping[str, int]
    """The tokens that are left out of decoded text, by name."""
    think_end_token: str | int | None
    defaults: Any
    """The model's `generation_config`; None if it has none."""
    device: torch.device


@dataclass(frozen=True)
class OwnLoop:
    """What our own generation loop runs on."""

    network: Network
    attend: Attend
    budget: Budget
    longest: int | None
    """Most tokens of prompt and answer together; None for no limit."""


@dataclass(frozen=True)
class TransformersLoop:
    """Generation by transformers, or by a method that a subclass has in its place."""

    generate: Callable[..., Tensor]
    """`HFLM._model_generate`."""
    compatibility: Callable[[list[Prompt]], BatchCompatibility]
    """Returns which of some prompts, sorted by length, may share a batch."""
    pad_token: int
    name: str
    """The class whose `generate` it is, for messages."""


class Generator:
    """Answers generation requests with a model."""

    def __init__(
        self,
        model: TextModel,
        own: OwnLoop | None,
        transformers: TransformersLoop,
        *,
        rows_at_once: Callable[[int], int],
        seed: int,
        usage: Usage,
    ) -> None:
        """Prepares to generate.

        Args:
            model: what is known of the model and its tokenizer.
            own: our own loop; None where it would not be exact.
            transformers: the loop for everything that our own does not support.
            rows_at_once: returns how many answers of so many tokens fit into one batch.
            seed: the start of all random numbers.
            usage: counts tokens and truncated requests.
        """
        self.model = model
        self.own = own
        self.transformers = transformers
        self.rows_at_once = rows_at_once
        self.seed = seed
        self.usage = usage

    def answer(self, requests: list[Instance]) -> Iterator[tuple[int, str]]:
        """Yields the number of a request and its answer, as answers are finished."""
        codes = self.model.encode(request.args[0] for request in requests)
        groups: dict[str, list[int]] = {}
        for i, request in enumerate(requests):
            check_settings(request.args[1], request)
            groups.setdefault(repr(sorted(request.args[1].items())), []).append(i)
        for numbers in groups.values():
            asked: Mapping[str, Any] = requests[numbers[0]].args[1]
            settings = self._read(asked)
            if settings.max_gen_toks < 1:
                yield from ((number, "") for number in numbers)
                continue
            prompts = self._prompts(requests, numbers, codes, settings)
            own = self._supporting(asked, prompts, settings)
            if own is not None:
                batch = partial(self._by_own_loop, own, settings, asked)
                compatibility: BatchCompatibility = "any"
            else:
                batch = partial(self._by_transformers, settings, asked)
                compatibility = self._compatibility(prompts, settings)
            found = in_batches(batch, prompts, settings, self.rows_at_once, compatibility)
            try:
                yield from in_order(found, [prompt.requests for prompt in prompts])
            except NotANumberError as error:
                raise error.of(requests[error.number]) from error

    def _read(self, asked: Mapping[str, Any]) -> Generation:
        default = getattr(self.model.defaults, "top_k", None)
        known = {"top_k": DEFAULT_TOP_K if default is None else default}
        if (top_p := getattr(self.model.defaults, "top_p", None)) is not None:
            known["top_p"] = top_p
        return read_generation({**known, **asked}, self.model.max_gen_toks)

    def _prompts(
        self,
        requests: list[Instance],
        numbers: list[int],
        codes: Mapping[str, list[int]],
        settings: Generation,
    ) -> list[Prompt]:
        """Returns contexts with the requests that ask for them, cut to leave room for answers."""
        model = self.model
        room = model.max_length
        if model.causal:
            room = room_before(settings, model.max_length, requests[numbers[0]])
        wanted: dict[str, list[int]] = {}
        for i in numbers:
            wanted.setdefault(requests[i].args[0], []).append(i)
        prompts = []
        for text, asking in wanted.items():
            tokens = codes[text]
            if len(tokens) > room:
                self.usage.truncated.update(task_of(requests[i]) for i in asking)
                tokens = tokens[-room:] if model.truncation_side == "left" else tokens[:room]
            first = answered_before([requests[i] for i in asking])
            prompts.append(Prompt(text, tokens, tuple(asking), first))
        # Long ones first: what does not fit into memory shows at once.
        return sorted(prompts, key=lambda prompt: (-len(prompt.tokens), prompt.tokens))

    def _supporting(
        self, asked: Mapping[str, Any], prompts: list[Prompt], settings: Generation
    ) -> OwnLoop | None:
        """Returns our own loop if it supports these settings."""
        own = self.own
        if own is None or set(asked) - KNOWN:
            return None
        longest = len(prompts[0].tokens) + settings.max_gen_toks
        if own.longest is not None and longest > own.longest:
            return None
        neutral = {**NEUTRAL, **(NEUTRAL_DRAWS if settings.sampled else {})}
        default = self.model.defaults
        plain = all(getattr(default, name, None) in values for name, values in neutral.items())
        return own if plain else None

    def _ending(self, settings: Generation, asked: Mapping[str, Any]) -> Ending:
        model = self.model
        ends = asked.get("eos_token_id", getattr(model.defaults, "eos_token_id", None))
        tokens = {model.end_token, *(ends if isinstance(ends, list) else [ends])}
        # Special tokens are left out of an answer's text, so they are looked for as tokens.
        tokens |= {token for text, token in model.special_tokens.items() if text in settings.until}
        # The stop strings, and the end-of-text token's own text.
        end = (
            ""
            if model.end_token is None
            else model.decode(model.end_token, skip_special_tokens=False)
        )
        theirs = asked.get("stop_strings") or getattr(model.defaults, "stop_strings", None) or ()
        stops = (*settings.until, *([theirs] if isinstance(theirs, str) else theirs), end)
        return Ending(
            frozenset(t for t in tokens if t is not None), tuple(stop for stop in stops if stop)
        )

    def _final_answer(self, tokens: list[int], ending: Ending) -> str:
        """Returns the text after the thinking, cut at its stop strings."""
        model = self.model
        tokens = ending.cut(tokens)
        thought = model.think_end_token
        if isinstance(thought, int):
            if thought in tokens:
                tokens = tokens[len(tokens) - tokens[::-1].index(thought) :]
            text = model.decode(tokens).lstrip()
        else:
            text = model.decode(tokens)
            if thought is not None:
                text = text.split(thought)[-1].lstrip()
        return cut_at_stop(text, ending.stops)

    # -- our own loop ----------------------------------------------------------------------------

    def _by_own_loop(
        self,
        own: OwnLoop,
        settings: Generation,
        asked: Mapping[str, Any],
        prompts: list[Prompt],
    ) -> Iterator[tuple[int, str]]:
        model = self.model
        ending = self._ending(settings, asked)
        for request, text, tokens in generate(
            own.network,
            model.decode,
            prompts,
            settings,
            ending,
            seed=self.seed,
            device=model.device,
            max_tokens=own.budget.tokens,
            attend=own.attend,
            used=self.usage,
        ):
            thinks = model.think_end_token is not None
            yield request, self._final_answer(tokens, ending) if thinks else text

    # -- transformers ----------------------------------------------------------------------------

    def _compatibility(self, prompts: list[Prompt], settings: Generation) -> BatchCompatibility:
        if not self.model.causal or sum(p.rows(settings) for p in prompts) == 1:
            return "any"
        return self.transformers.compatibility(prompts)

    def _by_transformers(
        self, settings: Generation, asked: Mapping[str, Any], prompts: list[Prompt]
    ) -> Iterator[tuple[int, str]]:
        model, loop = self.model, self.transformers
        rows = [p for p in prompts for _ in range(p.rows(settings))]
        width = max(len(p.tokens) for p in rows)
        context = torch.full((len(rows), width), loop.pad_token, device=model.device)
        mask = torch.zeros_like(context)
        for r, prompt in enumerate(rows):
            context[r, width - len(prompt.tokens) :] = torch.tensor(prompt.tokens)
            mask[r, width - len(prompt.tokens) :] = 1
        extras = {k: v for k, v in asked.items() if k not in {*LENGTH_NAMES, "until"}}
        extras["do_sample"] = settings.sampled
        extras["temperature"] = settings.temperature
        limit = extras.pop("max_length", settings.max_gen_toks + (width if model.causal else 1))
        ending = self._ending(settings, asked)
        try:
            with self._seeded(prompts[0], settings):
                made = loop.generate(
                    context=context,
                    attention_mask=mask,
                    max_length=limit,
                    stop=list(ending.stops),
                    **extras,
                ).tolist()
        except NotANumberError as error:
            raise NotANumberError(rows[error.number].requests[0]) from error
        read = sum(len(p.tokens) * len(p.requests) for p in prompts)
        self.usage.read(read, sum(len(p.tokens) for p in rows))
        if len(made) != len(rows):
            raise ModelError(
                f"{loop.name}._model_generate gave {len(made)} answers to {len(rows)} "
                "prompts; it must give one to each."
            )
        r = 0
        for prompt in prompts:
            for number in prompt.requests:
                row = ending.cut(made[r][width:] if model.causal else made[r][1:])
                self.usage.wrote(len(row))
                self.usage.generated(len(row))
                yield number, self._final_answer(row, ending)
                r += settings.sampled
            r += not settings.sampled

    @contextmanager
    def _seeded(self, first: Prompt, settings: Generation) -> Iterator[None]:
        """Lets transformers sample the same answers for the same batch in every run."""
        if not settings.sampled:
            yield
            return
        device = self.model.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            drawn = stream(self.seed, first.text, settings, first.first)
            torch.manual_seed(int(drawn.integers(1 << 62)))
            yield


def check_settings(asked: Mapping[str, Any], request: Instance) -> None:
    """Refuses settings that transformers would misunderstand or reject."""
    if not isinstance(asked, Mapping):
        raise ConfigError(
            f"task {task_of(request)!r}: generation settings are a dictionary, not {asked!r}."
        )
    for name, instead in REFUSED.items():
        if (value := asked.get(name)) is True or value not in (None, False, 1):
            raise ConfigError(f"task {task_of(request)!r}: {name} is not taken: {instead}.")


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """Returns the tokens that are left out of decoded text, by name."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {str(token): int(n) for n, token in added.items() if getattr(token, "special", False)}
