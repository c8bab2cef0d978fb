"""Scores continuations: over shared prefix trees, or with one row per request.

Both yield `(number, score)` in the order that suits the device, and both continue with a smaller
batch when memory runs out. The second is the definition, batched: the first is checked against it,
and it is the fallback where a model cannot share prefixes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Ordered, cut_rows, fill_up, plan
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window
from lm_eval.models.huggingface.attention import switched_on
from lm_eval.models.huggingface.memory import Budget, is_out_of_memory
from lm_eval.models.huggingface.network import Network, Scores, pieces, score_pieces
from lm_eval.models.huggingface.packing import send
from lm_eval.models.huggingface.tree import Tree

TREE_PRICE = {"cpu": 1.15, "cuda": 1.0, "other": 1.15}
"""Cost of a token in a tree relative to one in a row, measured on requests that share nothing: on a
CPU, nodes attend under masks; on a GPU a tree costs no more."""
ROUND_SIZES = ("cuda",)
"""Devices whose matrix library spends milliseconds on every new size."""
AHEAD = 3
"""Batches that are launched before waiting for the scores of the oldest."""

Score = tuple[float, bool]
Numbered = tuple[int, Score]


class Launched:
    """A launched batch: its requests, the number of scored tokens of each, and their scores."""

    def __init__(self, numbers: list[int], counts: list[int], scores: Tensor) -> None:
        """Starts copying `scores` (2, P) from the GPU: log-probabilities, and 1 for the likeliest.

        There is one copy per batch; it runs after the work that is already queued.
        """
        self.numbers = numbers
        self.counts = counts
        self.scores = scores
        self.done: torch.cuda.Event | None = None
        if scores.is_cuda:
            self.scores = torch.empty(scores.shape, dtype=scores.dtype, pin_memory=True)
            self.scores.copy_(scores, non_blocking=True)
            self.done = torch.cuda.Event()
            self.done.record(torch.cuda.current_stream(scores.device))

    def finish(self) -> Iterator[Numbered]:
        """Waits for the scores and yields their sum for each request."""
        if self.done is not None:
            self.done.synchronize()
        found, likeliest = self.scores.cpu().double().numpy()
        begins = np.cumsum([0, *self.counts[:-1]])
        sums = np.add.reduceat(found, begins)
        greedy = np.minimum.reduceat(likeliest, begins) > 0.5
        for number, total, every in zip(self.numbers, sums, greedy, strict=True):
            yield number, (float(total), bool(every))


def stack(scores: Scores, order: Tensor | None = None) -> Tensor:
    both = torch.stack([scores.logprob, scores.likeliest.to(scores.logprob.dtype)])
    return both if order is None else both[:, order.to(both.device)]


class Reading(NamedTuple):
    """Which hidden states are projected, each once, and which scores are taken from them.

    `row` is ascending, so that each piece of the rows corresponds to one stretch of it.
    """

    places: Any
    row: Any
    wanted: Any
    back: Any
    """The index in `wanted` of each requested token."""

    @classmethod
    def of(cls, places: Any, wanted: Any) -> Reading:
        distinct, row = np.unique(places, return_inverse=True)
        order = np.argsort(row, kind="stable")
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return cls(distinct, row[order], wanted[order], back)

    def filled_up(self, count: int) -> Reading:
        """Pads the hidden states to `count` with copies of the first."""
        again = np.full(count - len(self.places), self.places[0])
        return self._replace(places=np.concatenate([self.places, again]))


def round_up(count: int) -> int:
    """Rounds `count` up to one of few sizes, at most an eighth larger."""
    step = 1 << max(0, count.bit_length() - 4)
    return -(-count // step) * step


def in_pieces(count: int, size: int) -> int:
    """Rounds `count` up to a multiple of `size`, or to the next power of two if smaller."""
    return -(-count // size) * size if count > size else 1 << (count - 1).bit_length()


class Scorer:
    """Launches batches ahead of reading their scores, so that the device is never idle."""

    def __init__(self, device: torch.device, budget: Budget, vocabulary: int) -> None:
        self.device = device
        self.budget = budget
        self.vocabulary = vocabulary
        self.computed = 0
        """Tokens that the model was run on, without padding."""

    @property
    def rows_at_once(self) -> int:
        """Rows projected to the vocabulary at once; a power of two, so that sizes recur."""
        rows = max(1, self.budget.logit_bytes // (4 * self.vocabulary))
        return 1 << (rows.bit_length() - 1)

    def launches(self, windows: Mapping[int, Window]) -> Iterator[Launched]:
        raise NotImplementedError

    def score(self, portions: Iterable[Mapping[int, Window]]) -> Iterator[Numbered]:
        """Yields the score of each window by number.

        A window holds the tokens that are read and those that its last positions predict. Portions
        are requested one by one, while the device works.
        """
        pending: deque[Launched] = deque()
        for portion in portions:
            left = dict(portion)
            while left:
                ran_out: BaseException | None = None
                try:
                    for launched in self.launches(dict(left)):
                        pending.append(launched)
                        for number in launched.numbers:
                            del left[number]
                        if len(pending) > AHEAD:
                            yield from pending.popleft().finish()
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    ran_out = error.with_traceback(None)
                if ran_out is not None:
                    while pending:
                        yield from pending.popleft().finish()
                    self._shrink(ran_out)
        while pending:
            yield from pending.popleft().finish()

    def _shrink(self, ran_out: BaseException) -> None:
        if self.budget.tokens == 1:
            raise ModelError(
                "memory runs out even with one request at a time; use a smaller max_length, a "
                f"smaller dtype or more memory. ({ran_out})"
            ) from ran_out
        self.budget.halve()

    def send(self, *arrays: Any) -> list[Tensor]:
        """Copies arrays of integers to the device in one transfer."""
        whole = np.concatenate([np.asarray(array, dtype=np.int64) for array in arrays])
        return list(send(whole, self.device).split([len(array) for array in arrays]))


class TreeScorer(Scorer):
    """Computes every distinct prefix once, where that is cheaper than one row per request.

    With a `plain` scorer, requests go there where sharing does not pay: a tree of as many nodes as
    they have tokens costs a little more than rows, unless these need padding.
    """

    def __init__(
        self,
        network: Network,
        device: torch.device,
        budget: Budget,
        vocabulary: int,
        max_requests: int | None,
        kernels: bool,
        plain: PlainScorer | None = None,
    ) -> None:
        super().__init__(device, budget, vocabulary)
        self.network = network
        self.max_requests = max_requests
        self.kernels = kernels
        self.plain = plain
        self.last: Tree | None = None

    def launches(self, windows: Mapping[int, Window]) -> Iterator[Launched]:
        numbers = list(windows)
        ordered = Ordered.of(
            [windows[n][0] for n in numbers], [len(windows[n][1]) for n in numbers]
        )
        if self.plain is None or self.sharing_pays(ordered):
            yield from self._tree_launches(windows, numbers, ordered)
        else:
            before = self.plain.computed
            yield from self.plain.launches(windows)
            self.computed += self.plain.computed - before

    def sharing_pays(self, ordered: Ordered) -> bool:
        tree = TREE_PRICE.get(self.device.type, TREE_PRICE["other"]) * ordered.distinct
        return tree <= ordered.padded(self.budget.tokens, self.max_requests)

    def _tree_launches(
        self, windows: Mapping[int, Window], numbers: list[int], ordered: Ordered
    ) -> Iterator[Launched]:
        before = self.last = None
        limits = {"max_tokens": self.budget.tokens, "max_requests": self.max_requests}
        for batch in plan(ordered, **limits):
            count = len(batch.tokens) - batch.given
            self.computed += count
            if self.device.type in ROUND_SIZES:
                batch = fill_up(batch, max(count, min(round_up(count), self.budget.tokens)))
            self.last = tree = before = Tree(batch, kernels=self.kernels, before=before)
            asked = [numbers[i] for i in batch.requests]
            wanted = np.concatenate([windows[n][1] for n in asked])
            counts = [len(windows[n][1]) for n in asked]
            yield Launched(asked, counts, self.run(tree, wanted))

    def run(self, tree: Tree, wanted: Any) -> Tensor:
        """Runs one tree; returns the scores (2, P) of its requests' tokens, in order."""
        reading = Reading.of(tree.batch.scored - tree.batch.given, wanted)
        if self.device.type in ROUND_SIZES:
            reading = reading.filled_up(in_pieces(len(reading.places), self.rows_at_once))
        tokens, position, rows, row, target, back = self.send(tree.tokens, tree.position, *reading)
        with torch.inference_mode(), switched_on(self.network.configs, tree):
            hidden = self.network.hidden(tokens[None], position[None])[0]
            hidden = hidden.index_select(0, rows.to(hidden.device))
            cuts = pieces(reading.row, len(reading.places), self.rows_at_once)
            scores = self.network.score_rows(hidden, row, target, cuts)
            return stack(scores, back)


class PlainScorer(Scorer):
    """Computes each request in its own row; equal rows once.

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
        softmax_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(device, budget, vocabulary)
        self.network = network
        self.max_requests = max_requests
        self.logits = logits
        self.softmax_dtype = softmax_dtype or torch.float32

    def launches(self, windows: Mapping[int, Window]) -> Iterator[Launched]:
        alike: dict[tuple[int, ...], list[int]] = {}
        for n in windows:
            alike.setdefault(tuple(windows[n][0]), []).append(n)
        reads = sorted(alike, key=len, reverse=True)
        limit = self.budget.tokens
        if self.logits is not None:
            limit = min(limit, max(1, 8 * self.budget.logit_bytes // (4 * self.vocabulary)))
        for first, last in cut_rows([len(read) for read in reads], limit, self.max_requests):
            yield self._launch(windows, reads[first:last], alike)

    def _launch(
        self,
        windows: Mapping[int, Window],
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
        reading = Reading.of(np.concatenate(places), wanted)
        tokens, rows, row, target, back = self.send(padded.reshape(-1), *reading)
        cuts = pieces(reading.row, len(reading.places), self.rows_at_once)
        with torch.inference_mode():
            batch = tokens.view(padded.shape)
            if self.logits is None and self.network is not None:
                hidden = self.network.hidden(batch).flatten(0, 1)
                hidden = hidden.index_select(0, rows.to(hidden.device))
                scores = self.network.score_rows(hidden, row, target, cuts)
            else:
                assert self.logits is not None
                every = self.logits(batch)
                every = every[:, every.shape[1] - width :].flatten(0, 1)  # past virtual tokens
                scores = score_pieces(
                    lambda a, b: every.index_select(0, rows[a:b].to(every.device)),
                    row,
                    target,
                    cuts,
                    self.softmax_dtype,
                )
            self.computed += sum(map(len, reads))
            counts = [len(windows[n][1]) for n in asked]
            return Launched(asked, counts, stack(scores, back))
