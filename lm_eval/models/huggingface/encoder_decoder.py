"""Score continuations with an encoder-decoder model: each context encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.models.conventions import Window
from lm_eval.models.huggingface.memory import Budget
from lm_eval.models.huggingface.network import pieces, score_pieces
from lm_eval.models.huggingface.scoring import Launched, Scorer, stack

Call = Callable[..., Tensor]


class EncoderDecoderScorer(Scorer):
    """The encoder reads the context, the decoder is asked for the continuation.

    `call` is the model as a function of `(tokens, mask, labels)`, where a subclass has its own;
    otherwise a context is encoded once for all its continuations, under `autocast`.
    """

    def __init__(
        self,
        model: Any,
        device: torch.device,
        budget: Budget,
        vocabulary: int,
        max_requests: int | None,
        softmax_dtype: torch.dtype | None,
        call: Call | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        super().__init__(device, budget, vocabulary)
        self.model = model
        self.max_requests = max_requests
        self.softmax_dtype = softmax_dtype or torch.float32
        self.call = call
        self.autocast = autocast

    def launches(self, windows: Mapping[int, Window]) -> Iterator[Launched]:
        alike: dict[tuple[int, ...], list[int]] = {}
        for n in windows:
            alike.setdefault(tuple(windows[n][0]), []).append(n)
        contexts = sorted(alike, key=len, reverse=True)
        held: list[tuple[int, ...]] = []
        rows = 0
        for context in contexts:
            longest = max(len(windows[n][1]) for c in [*held, context] for n in alike[c])
            width = len(held[0]) if held else len(context)
            more = rows + len(alike[context])
            over = more * (width + longest) > self.budget.tokens
            if held and (over or (self.max_requests is not None and more > self.max_requests)):
                yield self._launch(windows, held, alike)
                held, rows = [], 0
            held.append(context)
            rows += len(alike[context])
        if held:
            yield self._launch(windows, held, alike)

    def _launch(
        self,
        windows: Mapping[int, Window],
        contexts: list[tuple[int, ...]],
        alike: dict[tuple[int, ...], list[int]],
    ) -> Launched:
        asked = [n for context in contexts for n in alike[context]]
        owner = [c for c, context in enumerate(contexts) for _ in alike[context]]
        read, mask = padded(contexts)
        labels, _ = padded([windows[n][1] for n in asked])
        counts = [len(windows[n][1]) for n in asked]
        width = labels.shape[1]
        row = np.concatenate([r * width + np.arange(count) for r, count in enumerate(counts)])
        target = np.concatenate([windows[n][1] for n in asked])
        tokens, seen, wanted, of, place, aim = self.send(
            read.reshape(-1), mask.reshape(-1), labels.reshape(-1), owner, row, target
        )
        with torch.inference_mode():
            tokens, seen = tokens.view(read.shape), seen.view(mask.shape)
            wanted = wanted.view(labels.shape)
            logits = self._logits(tokens, seen, wanted, of).flatten(0, 1)
            cuts = pieces(row, len(logits), self.rows_at_once)
            scores = score_pieces(
                lambda a, b: logits[a:b].clone(), place, aim, cuts, self.softmax_dtype
            )
            self.computed += sum(map(len, contexts))
            return Launched(asked, counts, stack(scores))

    def _logits(self, tokens: Tensor, seen: Tensor, labels: Tensor, owner: Tensor) -> Tensor:
        if self.call is not None:
            return self.call(tokens[owner], attn_mask=seen[owner], labels=labels)
        with self.autocast():
            states = self.model.get_encoder()(input_ids=tokens, attention_mask=seen)[0]
            scores: Tensor = self.model(
                encoder_outputs=(states[owner],), attention_mask=seen[owner], labels=labels
            ).logits
        return scores


def padded(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Rows filled up with zeros at their end, and a mask of what they hold."""
    width = max(map(len, rows))
    filled = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for r, row in enumerate(rows):
        filled[r, : len(row)] = row
        mask[r, : len(row)] = 1
    return filled, mask
