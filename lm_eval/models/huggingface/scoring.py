"""Score continuations: over shared prefix trees, or each request in a row of its own.

Both give `(number, score)` in the order that suits the device, and both go on with a smaller batch
when memory runs out. The second is the plain reading of the definition, batched: what the first is
checked against, and what is left where a model cannot share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import plan_carried
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window
from lm_eval.models.huggingface.attention import configs_of, switched_on
from lm_eval.models.huggingface.memory import Budget, is_out_of_memory
from lm_eval.models.huggingface.network import Network, Scores, pieces, score_pieces
from lm_eval.models.huggingface.tree import Tree

Score = tuple[float, bool]
Numbered = tuple[int, Score]


class NotANumberError(Exception):
    """The model's answer to one request is not a number."""

    def __init__(self, number: int) -> None:
        super().__init__(f"request {number}")
        self.number = number


@dataclass
class Launched:
    """A batch under way: which requests, how many scored tokens each, and their scores."""

    numbers: list[int]
    counts: list[int]
    scores: Tensor
    """(2, P) on the device: log-probabilities, and 1 where the token was the likeliest."""

    def finish(self) -> Iterator[Numbered]:
        """Bring the scores over, in one copy, and sum them up by request."""
        found, likeliest = self.scores.cpu().double().numpy()
        begins = np.cumsum([0, *self.counts[:-1]])
        sums = np.add.reduceat(found, begins)
        greedy = np.minimum.reduceat(likeliest, begins) > 0.5
        for number, total, every in zip(self.numbers, sums, greedy, strict=True):
            if total != total:
                raise NotANumberError(number)
            yield number, (float(total), bool(every))


def stack(scores: Scores, order: Tensor | None = None) -> Tensor:
    both = torch.stack([scores.logprob.float(), scores.likeliest.float()])
    return both if order is None else both[:, order]


class Scorer:
    """Runs batches one ahead of reading their scores, so that the device need not wait."""

    def __init__(self, device: torch.device, budget: Budget, vocabulary: int) -> None:
        self.device = device
        self.budget = budget
        self.vocabulary = vocabulary

    @property
    def rows_at_once(self) -> int:
        return max(1, self.budget.logit_bytes // (4 * self.vocabulary))

    def launches(self, windows: Sequence[Window], numbers: list[int]) -> Iterator[Launched]:
        raise NotImplementedError

    def score(self, windows: Sequence[Window]) -> Iterator[Numbered]:
        """Score fitted windows: what is read, and the tokens that its last positions predict."""
        left = dict.fromkeys(range(len(windows)))
        while left:
            pending: list[Launched] = []
            ran_out: BaseException | None = None
            try:
                for launched in self.launches(windows, list(left)):
                    pending.append(launched)
                    if len(pending) > 1:
                        yield from self._finish(pending.pop(0), left)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                ran_out = error.with_traceback(None)
            for launched in pending:
                yield from self._finish(launched, left)
            if ran_out is not None:
                if self.budget.tokens == 1:
                    raise ModelError(
                        "memory runs out even with one request at a time; use a smaller max_length, "
                        f"a smaller dtype or more memory. ({ran_out})"
                    ) from ran_out
                self.budget.halve()

    @staticmethod
    def _finish(launched: Launched, left: dict[int, None]) -> Iterator[Numbered]:
        for number, score in launched.finish():
            if number in left:
                del left[number]
                yield number, score

    def send(self, *arrays: Any) -> list[Tensor]:
        """Arrays of integers to the device, in one copy."""
        whole = np.concatenate([np.asarray(array, dtype=np.int64) for array in arrays])
        sent = torch.from_numpy(whole)
        if self.device.type == "cuda":
            sent = sent.pin_memory()
        parts = sent.to(self.device, non_blocking=True)
        return list(parts.split([len(array) for array in arrays]))


class TreeScorer(Scorer):
    """Every distinct prefix computed once."""

    def __init__(
        self,
        network: Network,
        device: torch.device,
        budget: Budget,
        vocabulary: int,
        max_requests: int | None,
        flash: bool,
    ) -> None:
        super().__init__(device, budget, vocabulary)
        self.network = network
        self.max_requests = max_requests
        self.flash = flash
        self.configs = configs_of(network.trunk)

    def launches(self, windows: Sequence[Window], numbers: list[int]) -> Iterator[Launched]:
        before: Tree | None = None
        for batch in plan_carried(
            [windows[n][0] for n in numbers],
            [len(windows[n][1]) for n in numbers],
            max_tokens=self.budget.tokens,
            max_requests=self.max_requests,
        ):
            tree = before = Tree(batch, flash=self.flash, before=before)
            asked = [numbers[i] for i in batch.requests]
            wanted = np.concatenate([windows[n][1] for n in asked])
            counts = [len(windows[n][1]) for n in asked]
            yield Launched(asked, counts, self.run(tree, wanted))

    def run(self, tree: Tree, wanted: Any) -> Tensor:
        """Run one tree; gives the scores of its requests' tokens, request after request."""
        nodes, row = np.unique(tree.batch.scored - tree.batch.given, return_inverse=True)
        order = np.argsort(row, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        tokens, position, rows, row_sorted, target, back_sent = self.send(
            tree.tokens, tree.position, nodes, row[order], wanted[order], back
        )
        with torch.inference_mode(), switched_on(self.configs, tree):
            hidden = self.network.hidden(tokens[None], position[None])[0].index_select(0, rows)
            cuts = pieces(row[order], len(nodes), self.rows_at_once)
            return stack(self.network.score_rows(hidden, row_sorted, target, cuts), back_sent)


class PlainScorer(Scorer):
    """Every request in a row of its own; equal rows once.

    `logits` may be a function from padded tokens (B, T) to all scores (B, T, V), for models that
    cannot be taken apart; otherwise only scored positions are projected.
    """

    def __init__(
        self,
        network: Network | None,
        device: torch.device,
        budget: Budget,
        vocabulary: int,
        max_requests: int | None,
        logits: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        super().__init__(device, budget, vocabulary)
        self.network = network
        self.max_requests = max_requests
        self.logits = logits

    def launches(self, windows: Sequence[Window], numbers: list[int]) -> Iterator[Launched]:
        alike: dict[tuple[int, ...], list[int]] = {}
        for n in numbers:
            alike.setdefault(tuple(windows[n][0]), []).append(n)
        reads = sorted(alike, key=len, reverse=True)
        limit = self.budget.tokens
        if self.logits is not None:
            limit = min(limit, max(1, 8 * self.budget.logit_bytes // (4 * self.vocabulary)))
        first = 0
        while first < len(reads):
            fitting = max(1, limit // len(reads[first]))
            last = first + min(fitting, self.max_requests or fitting)
            yield self._launch(windows, reads[first:last], alike)
            first = last

    def _launch(
        self,
        windows: Sequence[Window],
        reads: list[tuple[int, ...]],
        alike: dict[tuple[int, ...], list[int]],
    ) -> Launched:
        width = len(reads[0])
        padded = np.zeros((len(reads), width), dtype=np.int64)
        asked: list[int] = []
        places = []
        for r, read in enumerate(reads):
            padded[r, : len(read)] = read
            for n in alike[read]:
                asked.append(n)
                places.append(r * width + np.arange(len(read) - len(windows[n][1]), len(read)))
        wanted = np.concatenate([windows[n][1] for n in asked])
        nodes, row = np.unique(np.concatenate(places), return_inverse=True)
        order = np.argsort(row, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        tokens, rows, row_sorted, target, back_sent = self.send(
            padded.reshape(-1), nodes, row[order], wanted[order], back
        )
        cuts = pieces(row[order], len(nodes), self.rows_at_once)
        with torch.inference_mode():
            batch = tokens.view(padded.shape)
            if self.logits is None and self.network is not None:
                hidden = self.network.hidden(batch).flatten(0, 1).index_select(0, rows)
                scores = self.network.score_rows(hidden, row_sorted, target, cuts)
            else:
                assert self.logits is not None
                every = self.logits(batch)
                every = every[:, every.shape[1] - width :].flatten(0, 1)  # past virtual tokens
                scores = score_pieces(
                    lambda a, b: every.index_select(0, rows[a:b].to(every.device)),
                    row_sorted,
                    target,
                    cuts,
                    torch.float32 if self.network is None else self.network.softmax_dtype,
                )
            counts = [len(windows[n][1]) for n in asked]
            return Launched(asked, counts, stack(scores, back_sent))
