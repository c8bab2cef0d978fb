"""Scores continuations with an encoder-decoder model; each context is encoded once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.models.conventions import Window
from lm_eval.models.huggingface.memory import TokenBudget
from lm_eval.models.huggingface.network import score_in_pieces, split_into_pieces
from lm_eval.models.huggingface.scoring import LaunchedBatch, Scorer, stack_scores

Call = Callable[..., Tensor]


class EncoderDecoderScorer(Scorer):
    """Scores continuations with a decoder, after the encoder has read the context."""

    def __init__(
        self,
        model: Any,
        device: torch.device,
        budget: TokenBudget,
        vocabulary: int,
        max_requests: int | None,
        softmax_dtype: torch.dtype | None,
        call: Call | None = None,
        autocast: Callable[[], AbstractContextManager[Any]] = nullcontext,
    ) -> None:
        """Prepares to score with `model`; for parameters not listed here see `PlainScorer`.

        Args:
            call: the model as a function of `(tokens, attn_mask, labels)`, if a subclass replaces
                `_model_call`. If None, a context is encoded once for all its continuations.
            autocast: returns the context manager under which the model runs, if `call` is None.
        """
        super().__init__(device, budget, vocabulary)
        self.model = model
        self.max_requests = max_requests
        self.softmax_dtype = softmax_dtype or torch.float32
        self.call = call
        self.autocast = autocast

    def launch_batches(self, windows: Mapping[int, Window]) -> Iterator[LaunchedBatch]:
        """Launches windows `(context, continuation)`, given by request index.

        Contexts are launched in order of length, the longest first, each with all its
        continuations. Yields each batch after its launch.
        """
        requests_by_context: dict[tuple[int, ...], list[int]] = {}
        for n in windows:
            requests_by_context.setdefault(tuple(windows[n][0]), []).append(n)
        contexts = sorted(requests_by_context, key=len, reverse=True)
        held: list[tuple[int, ...]] = []
        rows = 0
        for context in contexts:
            longest = max(
                len(windows[n][1]) for c in [*held, context] for n in requests_by_context[c]
            )
            width = len(held[0]) if held else len(context)
            more = rows + len(requests_by_context[context])
            over = more * (width + longest) > self.budget.tokens
            if held and (over or (self.max_requests is not None and more > self.max_requests)):
                yield self._launch(windows, held, requests_by_context)
                held, rows = [], 0
            held.append(context)
            rows += len(requests_by_context[context])
        if held:
            yield self._launch(windows, held, requests_by_context)

    def _launch(
        self,
        windows: Mapping[int, Window],
        contexts: list[tuple[int, ...]],
        requests_by_context: dict[tuple[int, ...], list[int]],
    ) -> LaunchedBatch:
        """Launches one batch of distinct `contexts` with all their continuations.

        `requests_by_context` gives the indices of the requests with each context.
        """
        numbers_in_batch = [n for context in contexts for n in requests_by_context[context]]
        owner = [c for c, context in enumerate(contexts) for _ in requests_by_context[context]]
        read, mask = pad_right(contexts)
        labels, _ = pad_right([windows[n][1] for n in numbers_in_batch])
        counts = [len(windows[n][1]) for n in numbers_in_batch]
        width = labels.shape[1]
        row = np.concatenate([r * width + np.arange(count) for r, count in enumerate(counts)])
        target = np.concatenate([windows[n][1] for n in numbers_in_batch])
        tokens, seen, wanted, of, place, aim = self.copy_arrays(
            read.reshape(-1), mask.reshape(-1), labels.reshape(-1), owner, row, target
        )
        with torch.inference_mode():
            tokens, seen = tokens.view(read.shape), seen.view(mask.shape)
            wanted = wanted.view(labels.shape)
            logits = self._logits(tokens, seen, wanted, of).flatten(0, 1)
            cuts = split_into_pieces(row, len(logits), self.rows_at_once)
            scores = score_in_pieces(
                lambda a, b: logits[a:b].clone(), place, aim, cuts, self.softmax_dtype
            )
            self.computed += sum(map(len, contexts))
            return LaunchedBatch(numbers_in_batch, counts, stack_scores(scores))

    def _logits(self, tokens: Tensor, seen: Tensor, labels: Tensor, owner: Tensor) -> Tensor:
        """Returns the decoder's logits (R, S, V) for the continuations `labels` (R, S).

        `tokens` and their mask `seen` are the distinct contexts (C, T); `owner` (R) is the context
        of each continuation.
        """
        if self.call is not None:
            return self.call(tokens[owner], attn_mask=seen[owner], labels=labels)
        with self.autocast():
            states = self.model.get_encoder()(input_ids=tokens, attention_mask=seen)[0]
            scores: Tensor = self.model(
                encoder_outputs=(states[owner],), attention_mask=seen[owner], labels=labels
            ).logits
        return scores


def pad_right(rows: Sequence[Sequence[int]]) -> tuple[Any, Any]:
    """Returns rows of tokens as an array (R, T), and their mask: 1 for tokens, 0 for padding.

    Rows are padded with zeros on the right, to the length of the longest. There must be at least
    one.
    """
    width = max(map(len, rows))
    padded = np.zeros((len(rows), width), dtype=np.int64)
    mask = np.zeros((len(rows), width), dtype=np.int64)
    for r, row in enumerate(rows):
        padded[r, : len(row)] = row
        mask[r, : len(row)] = 1
    return padded, mask
