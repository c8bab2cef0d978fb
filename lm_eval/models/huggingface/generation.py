"""Generate answers to many prompts at once, each as if it were the only one.

Prompts of similar length go together; what they share is read once (`rows.prefill`); answers that
are finished leave the batch. Answers are drawn with random numbers of their own, so that what a
request gets does not depend on what else is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.api.usage import Usage
from lm_eval.models.conventions import Generation, cut_at_stop, stream
from lm_eval.models.huggingface.attention import Attend
from lm_eval.models.huggingface.naming import NotANumberError
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.rows import Rows, prefill

Decode = Callable[[list[int]], str]

BROKEN = -1
"""Stands for a token that could not be chosen, as its scores were not numbers."""
STEPS_BETWEEN_LOOKS = {"cpu": 1, "other": 4}
"""Tokens generated before the answers are looked at; looking makes a GPU wait."""


@dataclass(frozen=True)
class Prompt:
    """A context, and the answers wanted to it by the numbers of their requests."""

    text: str
    tokens: list[int]
    requests: tuple[int, ...]
    first: int = 0
    """Which repeat of the context the first request is: each repeat is drawn anew."""

    def rows(self, settings: Generation) -> int:
        """How many answers are generated; those that are not drawn are alike."""
        return len(self.requests) if settings.sampled else 1


@dataclass(frozen=True)
class Ending:
    """What ends an answer: tokens, or strings in its text."""

    tokens: frozenset[int]
    stops: tuple[str, ...]

    def cut(self, tokens: list[int]) -> list[int]:
        """Tokens up to the first that ends the answer; what is below 0 fills up behind it."""
        ends = (n for n, token in enumerate(tokens) if token in self.tokens or token < 0)
        return tokens[: next(ends, len(tokens))]

    @property
    def reach(self) -> int:
        """How many of the last tokens may hold a stop string that has just been completed."""
        return max((len(stop.encode()) for stop in self.stops), default=0) + 4


class Answers:
    """The tokens written so far, and which answers still grow."""

    def __init__(self, decode: Decode, ending: Ending, count: int, most: int) -> None:
        self.decode = decode
        self.ending = ending
        self.written = np.zeros((count, most), dtype=np.int64)
        self.length = 0
        self.live = list(range(count))

    def add(self, tokens: Any) -> list[tuple[int, str]]:
        """Take new tokens (live answers × steps); gives the answers finished by them."""
        old, self.length = self.length, self.length + tokens.shape[1]
        self.written[self.live, old : self.length] = tokens
        final = self.length == self.written.shape[1]
        tails = self._decode(
            [self.written[i, max(0, old - self.ending.reach) : self.length] for i in self.live]
        )
        finished = []
        for i, new, tail in zip(self.live, tokens.tolist(), tails, strict=True):
            ended = any(token in self.ending.tokens for token in new)
            if ended or final or any(stop in tail for stop in self.ending.stops):
                text = self.text(i)
                if ended or final or len(cut := cut_at_stop(text, self.ending.stops)) < len(text):
                    finished.append((i, text if ended or final else cut))
        done = {i for i, _ in finished}
        self.live = [i for i in self.live if i not in done]
        return [(i, cut_at_stop(text, self.ending.stops)) for i, text in finished]

    def tokens(self, i: int) -> list[int]:
        """An answer's tokens up to the one that ended it."""
        return self.ending.cut(self.written[i, : self.length].tolist())

    def text(self, i: int) -> str:
        return self.decode(self.tokens(i))

    def _decode(self, rows: list[Any]) -> list[str]:
        if not self.ending.stops:
            return [""] * len(rows)
        return [self.decode(row.tolist()) for row in rows]


def generate(
    network: Network,
    decode: Decode,
    prompts: Sequence[Prompt],
    settings: Generation,
    ending: Ending,
    *,
    seed: int,
    device: torch.device,
    max_tokens: int,
    attend: Attend,
    used: Usage,
) -> Iterator[tuple[int, str, list[int]]]:
    """Answer prompts under one setting; yields request, text and tokens as they are finished.

    Answers that are not drawn are alike, so one is generated for all that ask. A prompt whose
    scores are not numbers ends it all: among prompts read together, NaN spreads.
    """
    wanted = [p.requests[: p.rows(settings)] for p in prompts]
    owners = [(p, r) for p in range(len(prompts)) for r in range(len(wanted[p]))]
    rows_of = [[i for i, (p, _) in enumerate(owners) if p == q] for q in range(len(prompts))]
    draws = _draws(prompts, owners, settings, seed, device)
    answers = Answers(decode, ending, len(owners), settings.max_gen_toks)
    pause = STEPS_BETWEEN_LOOKS.get(device.type, STEPS_BETWEEN_LOOKS["other"])
    with torch.inference_mode():
        lengths = [len(prompts[p].tokens) for p, _ in owners]
        rows = Rows(lengths, settings.max_gen_toks, attend)
        tokens_of = [prompt.tokens for prompt in prompts]
        logits = prefill(network, rows, tokens_of, rows_of, max_tokens, device)
        used.read(sum(len(p.tokens) * len(p.requests) for p in prompts), rows.read)
        new: list[Tensor] = []
        for step in range(settings.max_gen_toks):
            token, sure = choose(logits, settings, None if draws is None else draws[:, step])
            new.append(torch.where(sure, token, BROKEN))
            if len(new) == pause or step + 1 == settings.max_gen_toks:
                before = list(answers.live)
                found = torch.stack(new, dim=1).cpu().numpy()
                if (found == BROKEN).any():
                    p, r = owners[before[int((found == BROKEN).any(axis=1).argmax())]]
                    raise NotANumberError(wanted[p][r])
                used.generated(found.size)
                finished = answers.add(found)
                new = []
                for i, text in finished:
                    p, r = owners[i]
                    written = answers.tokens(i)
                    for request in (wanted[p][r],) if settings.sampled else prompts[p].requests:
                        used.wrote(len(written))
                        yield request, text, written
                if not answers.live:
                    return
                if finished:
                    kept = [place for place, i in enumerate(before) if i in set(answers.live)]
                    rows.keep(kept)
                    chosen = torch.tensor(kept, device=device)
                    token = token[chosen]
                    draws = None if draws is None else draws[chosen]
            logits = rows.step(network, token[:, None])


def _draws(
    prompts: Sequence[Prompt],
    owners: Sequence[tuple[int, int]],
    settings: Generation,
    seed: int,
    device: torch.device,
) -> Tensor | None:
    """One number from [0, 1) for each token of each answer, where answers are drawn."""
    if not settings.sampled:
        return None
    numbers = [
        stream(seed, prompts[p].text, settings, prompts[p].first + r).random(settings.max_gen_toks)
        for p, r in owners
    ]
    return torch.from_numpy(np.array(numbers, dtype=np.float32)).to(device)


def choose(logits: Tensor, settings: Generation, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """The next token of each row: the likeliest, or the one a number from [0, 1) falls on.

    Beside it, whether the row's scores are numbers at all.
    """
    if draws is None:
        best = logits.max(dim=-1)
        return best.indices, ~best.values.isnan()
    scaled = logits.float() / settings.temperature
    if settings.top_k and settings.top_k < scaled.shape[1]:
        least = scaled.topk(settings.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    weights = torch.softmax(scaled, dim=-1)
    if settings.top_p < 1.0:
        ranked = weights.sort(dim=-1, descending=True).values
        inside = ranked.cumsum(dim=-1) - ranked < settings.top_p
        inside[:, 0] = True
        least = ranked.masked_fill(~inside, torch.inf).amin(dim=-1, keepdim=True)
        weights = weights.masked_fill(weights < least, 0.0)
    upto = weights.double().cumsum(dim=-1)
    place = (upto <= draws[:, None].to(upto.device) * upto[:, -1:]).sum(dim=-1)
    return place.clamp(max=upto.shape[1] - 1), ~upto[:, -1].isnan()
