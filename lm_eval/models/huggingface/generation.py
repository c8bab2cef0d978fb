"""Generates answers to many prompts at once, each as if it were the only one.

Prompts of similar length share a batch; what they have in common is read once (`Rows.prefill`);
finished answers leave the batch. Each answer is sampled with its own random numbers, so that it
does not depend on the other requests.
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
from lm_eval.models.huggingface.rows import Rows

Decode = Callable[[list[int]], str]

BROKEN = -1
"""Placeholder for a token whose scores were NaN."""
STEPS_BETWEEN_LOOKS = {"cpu": 1, "other": 4}
"""Tokens generated between checks for finished answers; a check synchronises the GPU."""


@dataclass(frozen=True)
class Prompt:
    """A context and the numbers of the requests that ask for its continuation."""

    text: str
    tokens: list[int]
    requests: tuple[int, ...]
    first: int = 0
    """Number of the first request's repeat: each repeat has its own random numbers."""

    def rows(self, settings: Generation) -> int:
        """Returns how many answers are generated: one for all repeats unless they are sampled."""
        return len(self.requests) if settings.sampled else 1


@dataclass(frozen=True)
class Ending:
    """What ends an answer: tokens, or strings in its text."""

    tokens: frozenset[int]
    stops: tuple[str, ...]

    def cut(self, tokens: list[int]) -> list[int]:
        """Returns the tokens before the first that ends the answer; negative ones are padding."""
        ends = (n for n, token in enumerate(tokens) if token in self.tokens or token < 0)
        return tokens[: next(ends, len(tokens))]

    @property
    def reach(self) -> int:
        """How many of the last tokens can contain a stop string that was just completed."""
        return max((len(stop.encode()) for stop in self.stops), default=0) + 4


class Answers:
    """The tokens generated so far, and which answers are unfinished."""

    def __init__(self, decode: Decode, ending: Ending, count: int, most: int) -> None:
        self.decode = decode
        self.ending = ending
        self.written = np.zeros((count, most), dtype=np.int64)
        self.length = 0
        self.live = list(range(count))

    def add(self, tokens: Any) -> list[tuple[int, str]]:
        """Adds new tokens (unfinished answers × steps); returns the answers that they finish."""
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
        """Returns an answer's tokens before the one that ended it."""
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
    """Yields request number, text and tokens of each answer as it is finished.

    Without sampling, all repeats of a prompt get one answer. NaN scores raise an error, because NaN
    spreads among prompts that are read together.
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
        logits = rows.prefill(network, tokens_of, rows_of, max_tokens, device)
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
    """Returns one number from [0, 1) for each token of each answer; None without sampling."""
    if not settings.sampled:
        return None
    numbers = [
        stream(seed, prompts[p].text, settings, prompts[p].first + r).random(settings.max_gen_toks)
        for p, r in owners
    ]
    return torch.from_numpy(np.array(numbers, dtype=np.float32)).to(device)


def choose(logits: Tensor, settings: Generation, draws: Tensor | None) -> tuple[Tensor, Tensor]:
    """Returns the next token of each row, and whether the row's scores are free of NaN.

    It is the likeliest, or with `draws` from [0, 1) the one that the cumulative distribution gives.
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
