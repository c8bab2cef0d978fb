"""`--model demo`: a small model that is part of the package and runs without a network."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model
from lm_eval.engine.plan import SortedSequences, plan
from lm_eval.engine.progress import progress
from lm_eval.models.conventions import (
    Generation,
    TextScores,
    Window,
    count_stored_repeats,
    fit_window,
    keep_end,
    max_context_tokens,
    move_spaces,
    read_generation,
    rolling_windows,
    sampling_seed,
    split_pair,
    task_of,
)
from lm_eval.models.demo.generate import Prompt, generate
from lm_eval.models.demo.llama import Llama, log_softmax

WEIGHTS = Path(__file__).parent / "weights"
END_OF_TEXT = "<|endoftext|>"
TREE_TOKENS = 1024
"""The maximum number of prompt tokens run at once: few enough to stay in the processor's cache."""
ANSWERS_AT_ONCE = 320
"""The maximum number of answers generated at once, unless `batch_size` is set."""


@register_model("demo")
class DemoLM(TemplateLM):
    """The demo model of this package, or another Llama model from a folder; runs on the CPU.

    Args:
        batch_size: how many requests are run at once; None or "auto" chooses a number that makes
            good use of the processor. Scores do not depend on it.
        max_batch_size: ignored; accepted because every model gets it.
        device: ignored; accepted because every model gets it.
        max_length: the context length in tokens, at most the one the model was trained with.
        max_gen_toks: the maximum length of an answer in tokens, if the request does not set it.
        seed: the seed for sampled answers; None for the seed of the run.
        prefix_sharing: whether shared prefixes are computed once. False computes every request
            alone, for comparison.
        pretrained: a folder with config.json, model.safetensors and tokenizer.json; None for the
            model of this package.
    """

    def __init__(
        self,
        batch_size: int | str | None = None,
        max_batch_size: int | None = None,
        device: str | None = None,
        max_length: int | None = None,
        max_gen_toks: int = 256,
        seed: int | None = None,
        prefix_sharing: bool = True,
        pretrained: str | None = None,
    ) -> None:
        super().__init__()
        self._folder = folder = Path(pretrained) if pretrained else WEIGHTS
        self.model = Llama(folder)
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.batch_size = None if batch_size in (None, "auto") else int(batch_size)
        self.max_length = min(max_length or self.model.max_length, self.model.max_length)
        self.max_gen_toks = max_gen_toks
        self.seed = seed
        self.prefix_sharing = prefix_sharing
        self._device = "cpu"

    @property
    def eot_token_id(self) -> int:
        return int(self.tokenizer.token_to_id(END_OF_TEXT))

    @property
    def tokenizer_name(self) -> str:
        return "demo"

    def tok_encode(
        self, string: str, add_special_tokens: bool | None = None, **kwargs: Any
    ) -> list[int]:
        """Returns the token ids of a text. Special tokens are never added."""
        return list(self.tokenizer.encode(string, add_special_tokens=False).ids)

    def tok_decode(self, tokens: Sequence[int]) -> str:
        """Returns the text of token ids, including special tokens."""
        return str(self.tokenizer.decode(list(tokens), skip_special_tokens=False))

    def identity(self) -> dict[str, Any]:
        """Returns what affects the answers, as a dictionary.

        The keys are `weights` (a hash), `seed` and `lengths` (those of context and answers).
        """
        weights = (self._folder / "model.safetensors").read_bytes()
        settings = {"seed": self.seed, "lengths": [self.max_length, self.max_gen_toks]}
        return {"weights": hashlib.sha256(weights).hexdigest(), **settings}

    def usage(self) -> dict[str, int]:
        return self.run_context.usage.totals()

    def _encode_all(self, texts: Iterable[str]) -> dict[str, list[int]]:
        """Returns the token ids of each distinct text, by text."""
        distinct = list(dict.fromkeys(texts))
        coded = self.tokenizer.encode_batch(distinct, add_special_tokens=False)
        return {text: list(code.ids) for text, code in zip(distinct, coded, strict=True)}

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        pairs = [move_spaces(*request.args) for request in requests]
        codes = self._encode_all([text for c, rest in pairs for text in (c, c + rest)])
        windows = [
            split_pair(codes[context + rest], codes[context], self.prefix_token_id)
            for context, rest in pairs
        ]
        self.run_context.usage.truncated.update(
            task_of(request)
            for request, (context, rest) in zip(requests, windows, strict=True)
            if len(context) + len(rest) > self.max_length + 1
        )
        encoded = [
            (request.args, *window) for request, window in zip(requests, windows, strict=True)
        ]
        return self._loglikelihood_tokens(encoded, disable_tqdm=disable_tqdm)

    def _loglikelihood_tokens(
        self,
        requests: list[tuple[tuple[str, str], list[int], list[int]]],
        disable_tqdm: bool = False,
        **kwargs: Any,
    ) -> list[tuple[float, bool]]:
        scores: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        windows = [(context, continuation) for _, context, continuation in requests]
        with progress(len(requests), "Scoring continuations", disable=disable_tqdm) as bar:
            for batch in self._score(windows):
                for i, score in batch:
                    scores[i] = score
                arguments = [requests[i][0] for i, _ in batch]
                self.cache_hook.add_batch("loglikelihood", arguments, [score for _, score in batch])
                bar.update(len(batch))
        return scores

    def _score(self, windows: Sequence[Window]) -> Iterator[list[tuple[int, tuple[float, bool]]]]:
        """Yields the scores of windows (context, continuation), one batch at a time.

        A batch is a list of `(index of the window, (log-likelihood, is greedy))`. The order is that
        of the prefix tree. The first batch, which may be empty, holds the windows with an empty
        continuation; their score is `(0.0, True)`.
        """
        fitted = [fit_window(*window, self.max_length) for window in windows]
        read = sum(len(tokens) for tokens, wanted in fitted if wanted)
        filled = [i for i, (_, wanted) in enumerate(fitted) if wanted]
        yield [(i, (0.0, True)) for i, (_, wanted) in enumerate(fitted) if not wanted]
        ordered = SortedSequences.of(
            [fitted[i][0] for i in filled],
            [len(fitted[i][1]) for i in filled],
            share=self.prefix_sharing,
        )
        most = TREE_TOKENS if self.batch_size is None else None
        given, computed = None, 0
        for batch in plan(ordered, max_tokens=most, max_requests=self.batch_size):
            hidden, cache = self.model.read(batch, given)
            given = cache.take(batch.kept_for_next)
            computed += len(hidden)
            nodes, row = np.unique(batch.scored - batch.num_cached, return_inverse=True)
            logits = log_softmax(self.model.logits(hidden[nodes]))
            numbers = [filled[request] for request in batch.requests]
            wanted = np.concatenate([fitted[i][1] for i in numbers]).astype(np.int64)
            found = logits[row, wanted].astype(np.float64)
            likeliest = logits.argmax(axis=1)[row] == wanted
            spans = [slice(*batch.offsets[place : place + 2]) for place in range(len(numbers))]
            yield [
                (number, (float(found[span].sum()), bool(likeliest[span].all())))
                for number, span in zip(numbers, spans, strict=True)
            ]
        self.run_context.usage.count_prompt(read, computed)

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        texts = [request.args[0] for request in requests]
        codes = self._encode_all(texts)
        windows: list[Window] = []
        owner: list[int] = []
        for i, text in enumerate(texts):
            cut = rolling_windows(codes[text], self.prefix_token_id, self.max_length)
            windows += cut
            owner += [i] * len(cut)
        totals = TextScores(owner, len(texts))
        with progress(len(texts), "Reading texts", unit="text", disable=disable_tqdm) as bar:
            done = [i for i, text in enumerate(texts) if not codes[text]]
            for batch in self._score(windows):
                whole = (totals.add(number, score) for number, (score, _) in batch)
                done += [i for i in whole if i is not None]
                arguments = [requests[i].args for i in done]
                found = [totals.of[i] for i in done]
                self.cache_hook.add_batch("loglikelihood_rolling", arguments, found)
                bar.update(len(done))
                done = []
        return totals.of

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        codes = self._encode_all([request.args[0] for request in requests])
        wanted: dict[Generation, dict[str, list[int]]] = {}
        for i, request in enumerate(requests):
            context, settings = request.args
            read = read_generation(settings, self.max_gen_toks)
            wanted.setdefault(read, {}).setdefault(context, []).append(i)
        answers = [""] * len(requests)
        usage = self.run_context.usage
        bar_of = progress(
            len(requests),
            "Generating answers",
            disable=disable_tqdm,
            tokens=lambda: usage.tokens_generated,
        )
        with bar_of as bar:
            for settings, contexts in wanted.items():
                for prompts in self._prompt_batches(requests, contexts, codes, settings):
                    batch = generate(
                        self.model,
                        self.tokenizer,
                        prompts,
                        settings,
                        seed=sampling_seed(self),
                        stop_token=self.eot_token_id,
                        max_tokens=TREE_TOKENS,
                        used=usage,
                    )
                    done = []
                    for i, text in batch:
                        answers[i] = text
                        done.append(i)
                        bar.update(1)
                    # All repeats of a prompt are reported in order: their order is their number.
                    done.sort()
                    arguments = [requests[i].args for i in done]
                    found = [answers[i] for i in done]
                    self.cache_hook.add_batch("generate_until", arguments, found)
                    self._count_generated(requests, prompts, codes, answers)
        return answers

    def _count_generated(
        self,
        requests: list[Instance],
        prompts: Sequence[Prompt],
        codes: dict[str, list[int]],
        answers: Sequence[str],
    ) -> None:
        """Updates the usage counts for the answers to a batch of prompts.

        A prompt is counted once per answer, although it is computed only once. `codes` are the
        tokens of each prompt before truncation, and `answers` the answers by index of their
        request.
        """
        written = self._encode_all(answers[i] for prompt in prompts for i in prompt.requests)
        usage = self.run_context.usage
        for prompt in prompts:
            size, times = len(prompt.tokens), len(prompt.requests)
            usage.count_prompt(size * times, size)
            usage.count_answer(sum(len(written[answers[i]]) for i in prompt.requests))
            if len(codes[prompt.text]) > size:
                usage.truncated.update(task_of(requests[i]) for i in prompt.requests)

    def _prompt_batches(
        self,
        requests: list[Instance],
        contexts: dict[str, list[int]],
        codes: dict[str, list[int]],
        settings: Generation,
    ) -> Iterator[list[Prompt]]:
        """Yields batches of prompts of similar length with the same generation settings.

        `contexts` maps each prompt to the indices of its requests, `codes` to its tokens. A prompt
        that leaves no room for the answer loses its first tokens. A batch has at most `batch_size`
        answers (by default `ANSWERS_AT_ONCE`), or a single prompt. Raises `ModelError` if the
        settings leave no room for a prompt.
        """
        prompts = []
        for text, numbers in contexts.items():
            room = max_context_tokens(settings, self.max_length, requests[numbers[0]])
            tokens = keep_end(codes[text], room) or [self.prefix_token_id]
            first = count_stored_repeats([requests[i] for i in numbers])
            prompts.append(Prompt(text, tokens, tuple(numbers), first))
        prompts.sort(key=lambda prompt: (len(prompt.requests), len(prompt.tokens), prompt.tokens))
        batch: list[Prompt] = []
        for prompt in prompts:
            answers = (len(batch) + 1) * len(prompt.requests)
            if batch and answers > (self.batch_size or ANSWERS_AT_ONCE):
                yield batch
                batch = []
            batch.append(prompt)
        if batch:
            yield batch
