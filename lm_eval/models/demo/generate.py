"""Generate answers to many prompts at once, each as if it were the only one.

What a request gets must not depend on what else is asked, or in which order. So each answer has a
random generator of its own, seeded by what was asked, and takes one number from it for each token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from lm_eval.api.usage import Usage
from lm_eval.engine.plan import Ints, Ordered, plan
from lm_eval.models.conventions import Generation, cut_at_stop, stream
from lm_eval.models.demo.llama import Cache, Decoder, Floats, Llama

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Prompt:
    """A context and the answers wanted to it, by the numbers of their requests."""

    text: str
    tokens: list[int]
    requests: tuple[int, ...]
    first: int = 0
    """Which repeat of the context the first request is: each repeat is drawn anew."""


def choose(logits: Floats, settings: Generation, draws: Doubles | None) -> Ints:
    """The next token of each row: the likeliest, or the one a number from [0, 1) falls on."""
    if draws is None:
        return np.asarray(logits.argmax(axis=1))
    scaled = logits.astype(np.float64) / settings.temperature
    if settings.top_k and settings.top_k < scaled.shape[1]:
        least = -np.partition(-scaled, settings.top_k - 1, axis=1)[:, settings.top_k - 1, None]
        scaled[scaled < least] = -np.inf
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    if settings.top_p < 1.0:
        ranked = -np.sort(-weights, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked
        inside = before < settings.top_p * ranked.sum(axis=1, keepdims=True)
        inside[:, 0] = True
        weights[weights < np.where(inside, ranked, np.inf).min(axis=1, keepdims=True)] = 0.0
    upto = np.cumsum(weights, axis=1)
    place = (upto <= draws[:, None] * upto[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(place, upto.shape[1] - 1))


def read_prompts(model: Llama, prompts: Sequence[Prompt], max_tokens: int) -> list[Cache]:
    """Read the prompts, what they share only once, and give each its keys and values.

    The last token of a prompt is left out: reading it is the first step of every answer.
    """
    caches: dict[int, Cache] = {}
    longer = [i for i, prompt in enumerate(prompts) if len(prompt.tokens) > 1]
    sequences = [prompts[i].tokens[:-1] for i in longer]
    ordered = Ordered.of(sequences, [1] * len(sequences))
    given = None
    for batch in plan(ordered, max_tokens=max_tokens):
        _, cache = model.read(batch, given)
        given = cache.take(batch.kept)
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
    """Answer some prompts under one setting; yields request and answer as answers are finished."""
    answers = max(len(prompt.requests) for prompt in prompts)
    decoder = Decoder(
        model, read_prompts(model, prompts, max_tokens), answers, settings.max_gen_toks
    )
    draws = np.zeros((len(prompts), answers, settings.max_gen_toks))
    if settings.sampled:
        for row, prompt in zip(draws, prompts, strict=True):
            for repeat in range(len(prompt.requests)):
                own = stream(seed, prompt.text, settings, prompt.first + repeat)
                row[repeat] = own.random(row.shape[1])
    written = np.zeros(draws.shape, dtype=np.int64)
    live = np.array([[r < len(prompt.requests) for r in range(answers)] for prompt in prompts])
    here = np.arange(len(prompts))
    token = np.repeat([prompt.tokens[-1] for prompt in prompts], answers)
    decode = _decoder(tokenizer)
    for step in range(settings.max_gen_toks):
        logits = decoder.step(token)
        drawn = draws[here, :, step].reshape(-1) if settings.sampled else None
        token = choose(logits, settings, drawn)
        written[here, :, step] = token.reshape(-1, answers)
        found, columns = np.nonzero(live[here])
        rows = here[found]
        used.generated(len(rows))
        ended = written[rows, columns, step] == stop_token
        texts = decode(
            [written[r, c, : step + 1 - e] for r, c, e in zip(rows, columns, ended, strict=True)]
        )
        final = step + 1 == settings.max_gen_toks
        for r, c, end, text in zip(rows.tolist(), columns.tolist(), ended, texts, strict=True):
            cut = cut_at_stop(text, settings.until)
            if end or final or len(cut) < len(text):
                live[r, c] = False
                yield prompts[r].requests[c], cut
        going = live[here].any(axis=1)
        if not going.any():
            return
        if 4 * going.sum() <= 3 * len(here):
            keep = np.flatnonzero(going)
            decoder.keep(keep)
            token = token.reshape(-1, answers)[keep].reshape(-1)
            here = here[keep]


def _decoder(tokenizer: Tokenizer) -> Callable[[list[Ints]], list[str]]:
    def decode(rows: list[Ints]) -> list[str]:
        return list(tokenizer.decode_batch([row.tolist() for row in rows]))

    return decode
