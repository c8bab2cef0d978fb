"""Greedy generation that guesses several tokens at once, by looking them up in earlier text.

Answers repeat parts of their prompts and of other answers. If the last tokens of an answer have
occurred before, the tokens that followed them are guessed to follow again. One forward pass checks
all guesses: those that the model itself would have chosen are kept, so the answer is the same as
without guesses. A pass over several tokens reads the key-value cache only once. On a CPU, that is
what most of the time is spent on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.api.usage import Usage
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.attention import AttentionKernels
from lm_eval.models.huggingface.generation import Prompt, WrittenAnswer
from lm_eval.models.huggingface.kv_cache import KeyValueCache
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.request_errors import NaNScoresError
from lm_eval.models.partial_answers import Decode, GrowingAnswer, StopConditions

NGRAM = 3
"""Number of last tokens that are looked up."""
MAX_GUESSES = 15
"""Maximum number of tokens that are guessed at once in one answer."""
ROWS_PER_PROJECTION = 128
"""Number of positions that are projected to logits at once."""
MAX_PAUSE = 32
"""Maximum number of tokens without guesses after guesses that were wrong."""

Key = tuple[int, ...]


class NgramIndex:
    """Where sequences of `NGRAM` tokens occurred last, in texts that only grow."""

    def __init__(self) -> None:
        self._place: dict[Key, tuple[list[int], int]] = {}

    def add(self, text: list[int], first: int) -> None:
        """Adds the n-grams of a text that are followed by a token with an index from `first` on."""
        for end in range(max(first, NGRAM), len(text)):
            self._place[tuple(text[end - NGRAM : end])] = text, end

    def following(self, last: Sequence[int], most: int) -> list[int]:
        """Returns the tokens, at most `most`, that last followed these `NGRAM` tokens."""
        text, place = self._place.get(tuple(last), ([], 0))
        return text[place : place + most]


class GuessedAnswer:
    """An answer that is being generated, and the guesses of its next tokens."""

    def __init__(self, prompt: Prompt, answer: GrowingAnswer, shared: NgramIndex) -> None:
        """`shared` is the index of all answers."""
        self.prompt = prompt
        self.answer = answer
        self.text = list(prompt.tokens)
        """The tokens of the prompt and the answer."""
        self.guesses: list[int] = []
        self._own = NgramIndex()
        self._own.add(self.text, 0)
        self._shared = shared
        self._most = 1
        self._pause = 0
        self._next_pause = 1

    def guess(self) -> list[int]:
        """Returns what is to be computed next: the last token and the guesses that follow it.

        There are fewer guesses than the answer has room for tokens: no position beyond the end of
        the longest answer is computed, for which the model may have no embedding.
        """
        self.guesses = []
        most = min(self._most, self.answer.room - 1)
        if self._pause:
            self._pause -= 1
        elif len(self.text) >= NGRAM:
            last = self.text[-NGRAM:]
            self.guesses = self._own.following(last, most)
            self.guesses = self.guesses or self._shared.following(last, most)
            while 0 < len(self.guesses) < most:  # the text found ends here: it goes on
                more = self._own.following([*last, *self.guesses][-NGRAM:], 1)
                if not more:
                    break
                self.guesses += more
        return [self.text[-1], *self.guesses]

    def check(self, chosen: list[int]) -> list[int]:
        """Returns the new tokens, given those that the model chose after each token computed.

        The guesses up to the first wrong one are confirmed, and the choice after them is new too.
        """
        right = 0
        while right < len(self.guesses) and self.guesses[right] == chosen[right]:
            right += 1
        if self.guesses:
            if right == len(self.guesses):
                self._most, self._next_pause = min(2 * self._most + 1, MAX_GUESSES), 1
            elif 2 * right < len(self.guesses):
                self._most = max(1, self._most // 2)
                if not right:
                    self._pause = self._next_pause
                    self._next_pause = min(2 * self._next_pause, MAX_PAUSE)
        new = chosen[: right + 1]
        old = len(self.text)
        self.text += new
        self._own.add(self.text, old)
        self._shared.add(self.text, old)
        return new


# As a decorator, it applies while this runs, not while the caller has an answer.
@torch.inference_mode()  # type: ignore[untyped-decorator]
def generate_with_lookup(
    network: Network,
    decode: Decode,
    prompts: Sequence[Prompt],
    settings: Generation,
    stop_conditions: StopConditions,
    *,
    device: torch.device,
    max_tokens: int,
    attention_kernels: AttentionKernels,
    usage: Usage,
) -> Iterator[tuple[int, WrittenAnswer]]:
    """Yields the request index and the answer to each request, as soon as it is finished.

    Decoding is greedy. The parameters are those of `generation.generate`.
    """
    shared = NgramIndex()
    most = settings.max_gen_toks
    rows = [
        GuessedAnswer(prompt, GrowingAnswer(decode, stop_conditions, most), shared)
        for prompt in prompts
    ]
    cache = KeyValueCache([len(p.tokens) for p in prompts], most, attention_kernels)
    alone = [[i] for i in range(len(prompts))]
    logits = cache.prefill(network, [p.tokens for p in prompts], alone, max_tokens, device)
    usage.count_prompt(
        sum(len(p.tokens) * len(p.requests) for p in prompts), cache.prompt_tokens_computed
    )
    chosen = _choose(logits, [1] * len(rows), rows)
    while True:
        kept = []
        for i, (row, tokens) in enumerate(zip(rows, chosen, strict=True)):
            new = row.check(tokens)
            usage.count_generated(len(new))
            if not row.answer.add(new):
                kept.append(i)
                continue
            written = row.answer.tokens
            for request in row.prompt.requests:
                usage.count_answer(len(written))
                yield request, WrittenAnswer(written)
        if not kept:
            return
        if len(kept) < len(rows):
            cache.keep(kept)
            rows = [rows[i] for i in kept]
        # Whatever was computed beyond the confirmed tokens is computed again.
        cache.lengths = np.array([len(row.text) - 1 for row in rows])
        inputs = [row.guess() for row in rows]
        hidden = cache.extend(network, inputs, device)
        chosen = _choose_in_pieces(network, hidden, [len(tokens) for tokens in inputs], rows)


def _choose_in_pieces(
    network: Network, hidden: Tensor, counts: list[int], rows: list[GuessedAnswer]
) -> list[list[int]]:
    """Returns the most likely next tokens of hidden states (positions, D), row by row.

    `counts` are the numbers of positions of the rows. Raises `NaNScoresError` if logits are NaN.
    """
    pieces = [network.logits(part).max(dim=-1) for part in hidden.split(ROWS_PER_PROJECTION)]
    return _split(
        torch.cat([piece.indices for piece in pieces]),
        torch.cat([piece.values for piece in pieces]),
        counts,
        rows,
    )


def _choose(logits: Tensor, counts: list[int], rows: list[GuessedAnswer]) -> list[list[int]]:
    """Returns the most likely next tokens by `logits` (positions, V), row by row."""
    best = logits.max(dim=-1)
    return _split(best.indices, best.values, counts, rows)


def _split(
    tokens: Tensor, scores: Tensor, counts: list[int], rows: list[GuessedAnswer]
) -> list[list[int]]:
    """Returns the tokens of each row. Raises `NaNScoresError` if one of its `scores` is NaN."""
    ends = np.cumsum(counts)
    is_nan: Any = scores.isnan()
    if bool(is_nan.any()):
        row = int(np.searchsorted(ends, int(is_nan.int().argmax()), side="right"))
        raise NaNScoresError(rows[row].prompt.requests[0])
    found = tokens.tolist()
    return [found[end - count : end] for end, count in zip(ends.tolist(), counts, strict=True)]
