"""Generates answers to a batch of prompts with the demo model.

An answer must not depend on the other requests or on their order. So each sampled answer has a
random generator that is seeded with its prompt and settings, and uses one random number per token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from lm_eval.api.usage import Usage
from lm_eval.engine.plan import Ints, SortedSequences, plan
from lm_eval.models.conventions import Generation, answer_rng, cut_at_stop
from lm_eval.models.demo.llama import Cache, Decoder, Llama
from lm_eval.models.sampling import choose_tokens


@dataclass(frozen=True)
class Prompt:
    """A prompt, and the requests that have it.

    `text` and `tokens` are the prompt; `requests` are the indices of the requests, one per answer
    to generate.
    """

    text: str
    tokens: list[int]
    requests: tuple[int, ...]
    first: int = 0
    """Number of the repeat that the first request is; each repeat has its own random numbers."""


def read_prompts(model: Llama, prompts: Sequence[Prompt], max_tokens: int) -> list[Cache]:
    """Returns the key-value cache of each prompt without its last token, in the order of `prompts`.

    Shared prefixes are computed once. The last token is left out because reading it is the first
    step of generating an answer; the cache of a prompt with one token is empty. `max_tokens` is the
    maximum number of tokens per batch.
    """
    caches: dict[int, Cache] = {}
    longer = [i for i, prompt in enumerate(prompts) if len(prompt.tokens) > 1]
    sequences = [prompts[i].tokens[:-1] for i in longer]
    ordered = SortedSequences.of(sequences, [1] * len(sequences))
    given = None
    for batch in plan(ordered, max_tokens=max_tokens):
        _, cache = model.read(batch, given)
        given = cache.take(batch.kept_for_next)
        for request, last in zip(batch.requests, batch.scored, strict=True):
            caches[longer[request]] = cache.take(batch.path(int(last)))
    empty = model.empty_cache()
    return [caches.get(i, empty) for i in range(len(prompts))]


def generate(
    model: Llama,
    tokenizer: Tokenizer,
    prompts: Sequence[Prompt],
    settings: Generation,
    *,
    seed: int,
    stop_token: int,
    max_tokens: int,
    used: Usage,
) -> Iterator[tuple[int, str]]:
    """Yields `(index of the request, answer)` for each request, as answers are finished.

    An answer ends before `stop_token` or the first stop string, or after `settings.max_gen_toks`
    tokens.

    Args:
        model: the model.
        tokenizer: decodes the answers.
        prompts: the prompts of the batch, at least one.
        settings: the generation settings, the same for all prompts.
        seed: the seed of sampled answers.
        stop_token: the token that ends an answer.
        max_tokens: the maximum number of prompt tokens run at once.
        used: its count of generated tokens is updated at every step.
    """
    answers = max(len(prompt.requests) for prompt in prompts)
    decoder = Decoder(
        model, read_prompts(model, prompts, max_tokens), answers, settings.max_gen_toks
    )
    draws = np.zeros((len(prompts), answers, settings.max_gen_toks))
    if settings.sampled:
        for row, prompt in zip(draws, prompts, strict=True):
            for repeat in range(len(prompt.requests)):
                own = answer_rng(seed, prompt.text, settings, prompt.first + repeat)
                row[repeat] = own.random(row.shape[1])
    generated = np.zeros(draws.shape, dtype=np.int64)
    active = np.array([[r < len(prompt.requests) for r in range(answers)] for prompt in prompts])
    here = np.arange(len(prompts))
    token = np.repeat([prompt.tokens[-1] for prompt in prompts], answers)
    decode = _decoder(tokenizer)
    for step in range(settings.max_gen_toks):
        logits = decoder.step(token)
        drawn = draws[here, :, step].reshape(-1) if settings.sampled else None
        token = choose_tokens(logits, settings, drawn)
        generated[here, :, step] = token.reshape(-1, answers)
        found, columns = np.nonzero(active[here])
        rows = here[found]
        used.count_generated(len(rows))
        ended = generated[rows, columns, step] == stop_token
        texts = decode(
            [generated[r, c, : step + 1 - e] for r, c, e in zip(rows, columns, ended, strict=True)]
        )
        final = step + 1 == settings.max_gen_toks
        for r, c, end, text in zip(rows.tolist(), columns.tolist(), ended, texts, strict=True):
            cut = cut_at_stop(text, settings.until)
            if end or final or len(cut) < len(text):
                active[r, c] = False
                yield prompts[r].requests[c], cut
        unfinished = active[here].any(axis=1)
        if not unfinished.any():
            return
        # Dropping finished rows copies the cache, which pays off only for many of them.
        if 4 * unfinished.sum() <= 3 * len(here):
            keep = np.flatnonzero(unfinished)
            decoder.keep(keep)
            token = token.reshape(-1, answers)[keep].reshape(-1)
            here = here[keep]


def _decoder(tokenizer: Tokenizer) -> Callable[[list[Ints]], list[str]]:
    """Returns a function that decodes many token sequences to strings."""

    def decode(rows: list[Ints]) -> list[str]:
        return list(tokenizer.decode_batch([row.tolist() for row in rows]))

    return decode
