"""From generation requests to answers: which go together, and by which way they are generated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from lm_eval.api.instance import Instance
from lm_eval.config.generation import LENGTH_NAMES
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.conventions import (
    Generation,
    answered_before,
    cut_at_stop,
    drawing_seed,
    read_generation,
    room_before,
    stream,
    task_of,
)
from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.batches import in_batches, in_order
from lm_eval.models.huggingface.company import Company, try_company
from lm_eval.models.huggingface.generation import Ending, Prompt, generate
from lm_eval.models.huggingface.live import has_own_generate
from lm_eval.models.huggingface.loading import dtype_of
from lm_eval.models.huggingface.naming import NotANumberError
from lm_eval.models.huggingface.network import text_config

if TYPE_CHECKING:
    from lm_eval.models.huggingface.model import HFLM

#: Settings that our own loop knows; with any other, transformers generates.
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
#: Settings that would change what comes back, with what is meant instead.
REFUSED = {
    "num_return_sequences": "several answers to a request are `repeats` of its task",
    "return_dict_in_generate": "only the text is looked at",
    "stop": "stop strings are called `until`",
}
#: Model defaults that change drawn answers.
NEUTRAL_DRAWS = {
    "min_p": (None, 0.0),
    "typical_p": (None, 1.0),
    "epsilon_cutoff": (None, 0.0),
    "eta_cutoff": (None, 0.0),
    "top_h": (None,),
}
DEFAULT_TOP_K = 50
"""What transformers samples from where neither request nor model says."""
ROW_BYTES = 1 << 30
"""Most memory for keys and values of answers under way, off a GPU."""
MOST_ROWS = {"cpu": 64, "cuda": 512, "other": 64}


class Generator:
    """Answers generation requests with a model."""

    def __init__(self, lm: HFLM) -> None:
        self.lm = lm
        self.settings = getattr(lm.model, "generation_config", None)
        self.special = special_tokens(lm.tokenizer)
        # Outside a run each call draws anew, as torch's own seed has it; processes that hold parts
        # of one model must draw the same.
        told = lm.seed is not None or lm.run_context.seed is not None or lm.lockstep
        self.seed = drawing_seed(lm) if told else int(torch.randint(1 << 62, ()))

    def answer(self, requests: list[Instance]) -> Iterator[tuple[int, str]]:
        """Yields the number of a request and its answer, as answers are finished."""
        codes = self._codes(request.args[0] for request in requests)
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
            ours = self._is_ours(asked, prompts, settings)
            way = partial(self._our_way if ours else self._their_way, settings, asked)
            company = "any" if ours else self._company(prompts, settings)
            found = in_batches(way, prompts, settings, self._rows_at_once, company)
            try:
                yield from in_order(found, [prompt.requests for prompt in prompts])
            except NotANumberError as error:
                raise error.of(requests[error.number]) from error

    def _codes(self, texts: Iterable[str]) -> Mapping[str, list[int]]:
        """The tokens of contexts, by the methods that a subclass has replaced."""
        lm = self.lm
        if type(lm).tok_batch_encode is not HuggingFaceModel.tok_batch_encode:
            rows = ((text, lm.tok_batch_encode([text])) for text in dict.fromkeys(texts))
            return {text: ids[0][mask[0].bool()].tolist() for text, (ids, mask) in rows}
        if type(lm).tok_encode is not HuggingFaceModel.tok_encode:
            return {text: lm.tok_encode(text) for text in dict.fromkeys(texts)}
        return lm.text_encoder.encode_all(texts)

    def _read(self, asked: Mapping[str, Any]) -> Generation:
        default = getattr(self.settings, "top_k", None)
        known = {"top_k": DEFAULT_TOP_K if default is None else default}
        if (top_p := getattr(self.settings, "top_p", None)) is not None:
            known["top_p"] = top_p
        return read_generation({**known, **asked}, self.lm.max_gen_toks)

    def _prompts(
        self,
        requests: list[Instance],
        numbers: list[int],
        codes: Mapping[str, list[int]],
        settings: Generation,
    ) -> list[Prompt]:
        """Contexts with the requests that ask for them, cut to leave room for the answer."""
        lm = self.lm
        room = lm.max_length
        if lm.backend == "causal":
            room = room_before(settings, lm.max_length, requests[numbers[0]])
        wanted: dict[str, list[int]] = {}
        for i in numbers:
            wanted.setdefault(requests[i].args[0], []).append(i)
        prompts = []
        for text, asking in wanted.items():
            tokens = codes[text] or [lm.prefix_token_id]
            if len(tokens) > room:
                lm.run_context.usage.truncated.update(task_of(requests[i]) for i in asking)
                tokens = tokens[-room:] if lm.truncation_side == "left" else tokens[:room]
            first = answered_before([requests[i] for i in asking])
            prompts.append(Prompt(text, tokens, tuple(asking), first))
        # Long ones first: what does not fit into memory shows at once.
        return sorted(prompts, key=lambda prompt: (-len(prompt.tokens), prompt.tokens))

    def _is_ours(
        self, asked: Mapping[str, Any], prompts: list[Prompt], settings: Generation
    ) -> bool:
        lm = self.lm
        if lm.backend != "causal" or not lm.ways.tree or set(asked) - KNOWN:
            return False
        if type(lm)._model_generate is not HuggingFaceModel._model_generate:
            return False
        if has_own_generate(lm.model):
            return False
        longest = len(prompts[0].tokens) + settings.max_gen_toks
        if lm.ways.longest is not None and longest > lm.ways.longest:
            return False
        neutral = {**NEUTRAL, **(NEUTRAL_DRAWS if settings.sampled else {})}
        return all(getattr(self.settings, name, None) in plain for name, plain in neutral.items())

    def _rows_at_once(self, length: int) -> int:
        lm = self.lm
        if lm.max_requests is not None:
            return lm.max_requests
        config, kind = text_config(lm.config), lm.device.type
        heads = getattr(config, "num_attention_heads", 1) or 1
        width = (
            getattr(config, "head_dim", None) or getattr(config, "hidden_size", 1 << 12) // heads
        )
        layers = getattr(config, "num_hidden_layers", 1 << 5)
        pairs = 2 * layers * (getattr(config, "num_key_value_heads", 0) or heads)
        memory = ROW_BYTES
        if kind == "cuda":
            memory = torch.cuda.mem_get_info(lm.device)[0] // 4
        fitting: int = memory // (pairs * width * length * dtype_of(lm.model).itemsize)
        return max(1, min(fitting, MOST_ROWS.get(kind, MOST_ROWS["other"])))

    # -- our own loop ----------------------------------------------------------------------------

    def _our_way(
        self, settings: Generation, asked: Mapping[str, Any], prompts: list[Prompt]
    ) -> Iterator[tuple[int, str]]:
        lm = self.lm
        assert lm._network is not None
        ending = self._ending(settings, asked)
        for request, text, tokens in generate(
            lm._network,
            lm.tok_decode,
            prompts,
            settings,
            ending,
            seed=self.seed,
            device=lm.device,
            max_tokens=lm.budget.tokens,
            attend=lm.ways.attend,
            used=lm.run_context.usage,
        ):
            yield request, text if lm.think_end_token is None else self._said(tokens, ending)

    def _ending(self, settings: Generation, asked: Mapping[str, Any]) -> Ending:
        lm = self.lm
        ends = asked.get("eos_token_id", getattr(self.settings, "eos_token_id", None))
        tokens = {lm.eot_token_id, *(ends if isinstance(ends, list) else [ends])}
        # Special tokens are left out of an answer's text, so they are looked for as tokens.
        tokens |= {token for text, token in self.special.items() if text in settings.until}
        # The stop strings, and the end-of-text token's own text.
        end = (
            ""
            if lm.eot_token_id is None
            else lm.tok_decode(lm.eot_token_id, skip_special_tokens=False)
        )
        theirs = asked.get("stop_strings") or getattr(self.settings, "stop_strings", None) or ()
        stops = (*settings.until, *([theirs] if isinstance(theirs, str) else theirs), end)
        return Ending(
            frozenset(t for t in tokens if t is not None), tuple(stop for stop in stops if stop)
        )

    def _said(self, tokens: list[int], ending: Ending) -> str:
        """The answer behind the thinking, cut at its stop strings."""
        lm = self.lm
        tokens = ending.cut(tokens)
        thought = lm.think_end_token
        if isinstance(thought, int):
            if thought in tokens:
                tokens = tokens[len(tokens) - tokens[::-1].index(thought) :]
            text = lm.tok_decode(tokens).lstrip()
        else:
            text = lm.tok_decode(tokens)
            if thought is not None:
                text = text.split(thought)[-1].lstrip()
        return cut_at_stop(text, ending.stops)

    # -- transformers' way -------------------------------------------------------------------------

    def _company(self, prompts: list[Prompt], settings: Generation) -> Company:
        lm = self.lm
        single = lm.max_requests == 1 or sum(p.rows(settings) for p in prompts) == 1
        if lm.backend != "causal" or single:
            return "any"
        if lm.company is None:
            lm.company = try_company(lm, prompts)
        return lm.company

    def _their_way(
        self, settings: Generation, asked: Mapping[str, Any], prompts: list[Prompt]
    ) -> Iterator[tuple[int, str]]:
        lm = self.lm
        rows = [p for p in prompts for _ in range(p.rows(settings))]
        width = max(len(p.tokens) for p in rows)
        pad = lm.tokenizer.pad_token_id or 0
        context = torch.full((len(rows), width), pad, device=lm.device)
        mask = torch.zeros_like(context)
        for r, prompt in enumerate(rows):
            context[r, width - len(prompt.tokens) :] = torch.tensor(prompt.tokens)
            mask[r, width - len(prompt.tokens) :] = 1
        extras = {k: v for k, v in asked.items() if k not in {*LENGTH_NAMES, "until"}}
        extras["do_sample"] = settings.sampled
        extras["temperature"] = settings.temperature
        causal = lm.backend == "causal"
        limit = extras.pop("max_length", settings.max_gen_toks + (width if causal else 1))
        ending = self._ending(settings, asked)
        try:
            with self._drawn_alike(prompts[0], settings):
                made = lm._model_generate(
                    context=context,
                    attention_mask=mask,
                    max_length=limit,
                    stop=list(ending.stops),
                    **extras,
                ).tolist()
        except NotANumberError as error:
            raise NotANumberError(rows[error.number].requests[0]) from error
        read = sum(len(p.tokens) * len(p.requests) for p in prompts)
        lm.run_context.usage.read(read, sum(len(p.tokens) for p in rows))
        if len(made) != len(rows):
            raise ModelError(
                f"{type(lm).__name__}._model_generate gave {len(made)} answers to {len(rows)} "
                "prompts; it must give one to each."
            )
        r = 0
        for prompt in prompts:
            for number in prompt.requests:
                row = ending.cut(made[r][width:] if causal else made[r][1:])
                lm.run_context.usage.wrote(len(row))
                lm.run_context.usage.generated(len(row))
                yield number, self._said(row, ending)
                r += settings.sampled
            r += not settings.sampled

    @contextmanager
    def _drawn_alike(self, first: Prompt, settings: Generation) -> Iterator[None]:
        """Let transformers draw the same answers for the same batch in every run."""
        if not settings.sampled:
            yield
            return
        device = self.lm.device
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            drawn = stream(self.seed, first.text, settings, first.first)
            torch.manual_seed(int(drawn.integers(1 << 62)))
            yield


def check_settings(asked: Mapping[str, Any], request: Instance) -> None:
    """Refuse what transformers would take otherwise than it is meant, or not at all."""
    if not isinstance(asked, Mapping):
        raise ConfigError(
            f"task {task_of(request)!r}: generation settings are a dictionary, not {asked!r}."
        )
    for name, instead in REFUSED.items():
        if (value := asked.get(name)) is True or value not in (None, False, 1):
            raise ConfigError(f"task {task_of(request)!r}: {name} is not taken: {instead}.")


def special_tokens(tokenizer: Any) -> dict[str, int]:
    """The tokens that are left out of decoded text, by what they are called."""
    added = getattr(tokenizer, "added_tokens_decoder", {})
    return {str(token): int(n) for n, token in added.items() if getattr(token, "special", False)}
