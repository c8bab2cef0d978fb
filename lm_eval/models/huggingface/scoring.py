"""Scores continuations, either over shared prefix trees or with one row per request.

Both scorers yield `(request index, score)` in the order that suits the device, and continue with
smaller batches if memory runs out. The plain scorer follows the definition, in batches. The tree
scorer is checked against the definition at the start; the plain scorer is its fallback.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import SortedSequences, pad_batch, plan, split_rows_into_batches
from lm_eval.errors import ModelError
from lm_eval.models.conventions import Window
from lm_eval.models.huggingface.attention import use_layout
from lm_eval.models.huggingface.memory import TokenBudget, is_out_of_memory
from lm_eval.models.huggingface.network import Network, Scores, score_in_pieces, split_into_pieces
from lm_eval.models.huggingface.packing import copy_to_device
from lm_eval.models.huggingface.tree import TreeLayout

TREE_COST_FACTOR = {"cpu": 1.15, "cuda": 1.0, "other": 1.15}
"""Cost of a token in a tree relative to a token in a row, by device type. It was measured on
requests that share nothing. On a CPU, trees need attention masks; on a GPU they cost no more than
rows."""
ROUNDED_SIZE_DEVICES = ("cuda",)
"""Device types whose matrix library takes milliseconds for every new size, so that sizes are
rounded."""
LARGEST_STEP = 512
"""Sizes are rounded up by less than this, so that little is computed in vain."""
MAX_PENDING_BATCHES = 3
"""How many batches are launched before the scores of the oldest are awaited."""

Score = tuple[float, bool]
"""The log-probability of a continuation, and whether greedy decoding would generate it."""
NumberedScore = tuple[int, Score]
"""The index of a request, and its score."""


class LaunchedBatch:
    """A batch that was launched on the device and whose scores may not be available yet."""

    def __init__(self, numbers: list[int], counts: list[int], scores: Tensor) -> None:
        """Starts copying the scores from the GPU, after the work that is already queued there.

        Args:
            numbers: the indices of the requests.
            counts: the number of scored tokens of each request.
            scores: for all tokens (2, P), the log-probability, and 1 if the token was the most
                likely.
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

    def finish(self) -> Iterator[NumberedScore]:
        """Waits for the scores; yields the index and the score of each request.

        A score is the summed log-probability of the scored tokens, and whether each of them was the
        most likely one.
        """
        if self.done is not None:
            self.done.synchronize()
        found, is_greedy = self.scores.cpu().double().numpy()
        begins = np.cumsum([0, *self.counts[:-1]])
        sums = np.add.reduceat(found, begins)
        greedy = np.minimum.reduceat(is_greedy, begins) > 0.5
        for number, total, all_greedy in zip(self.numbers, sums, greedy, strict=True):
            yield number, (float(total), bool(all_greedy))


def stack_scores(scores: Scores, order: Tensor | None = None) -> Tensor:
    """Returns scores as one tensor (2, P): log-probabilities, and 1 for the most likely tokens.

    Other tokens have 0 in place of 1. `order` (P) reorders the columns.
    """
    both = torch.stack([scores.logprob, scores.is_greedy.to(scores.logprob.dtype)])
    return both if order is None else both[:, order.to(both.device)]


class ScoredPositions(NamedTuple):
    """The positions whose hidden states are projected to logits, and the targets they predict.

    Each position is projected once, even if several requests share it.
    """

    positions: Any
    """The distinct positions, in ascending order."""
    row: Any
    """For each target, the index in `positions` of the position that predicts it; in ascending
    order."""
    targets: Any
    """The tokens to score, in the order of `row`."""
    inverse: Any
    """The index in `targets` of each originally requested token."""

    @classmethod
    def of(cls, positions: Any, targets: Any) -> ScoredPositions:
        """Returns the scored positions for `targets` (P) that are predicted at `positions` (P)."""
        distinct, row = np.unique(positions, return_inverse=True)
        order = np.argsort(row, kind="stable")
        inverse = np.empty_like(order)
        inverse[order] = np.arange(len(order))
        return cls(distinct, row[order], targets[order], inverse)

    def padded_to(self, count: int) -> ScoredPositions:
        """Returns these with `positions` padded to `count` entries by copies of the first.

        `count` must not be less than their number.
        """
        again = np.full(count - len(self.positions), self.positions[0])
        return self._replace(positions=np.concatenate([self.positions, again]))


def round_up(count: int) -> int:
    """Returns `count` rounded up so that few different sizes occur.

    It grows by at most an eighth, and by less than `LARGEST_STEP`. Counts up to 16 are unchanged.
    """
    step = min(LARGEST_STEP, 1 << max(0, count.bit_length() - 4))
    return -(-count // step) * step


def round_up_to_pieces(count: int, size: int) -> int:
    """Returns `count` rounded up to a multiple of `size`.

    A `count` of at most `size` is rounded up to a power of two instead.
    """
    return -(-count // size) * size if count > size else 1 << (count - 1).bit_length()


class Scorer:
    """Base class of scorers. It launches further batches while earlier ones are still computed.

    Subclasses implement `launch_batches`.
    """

    def __init__(self, device: torch.device, budget: TokenBudget, vocabulary: int) -> None:
        """Stores the limits.

        Args:
            device: where tokens are put.
            budget: the limits of a batch; halved if memory runs out.
            vocabulary: the number of tokens of the model.
        """
        self.device = device
        self.budget = budget
        self.vocabulary = vocabulary
        self.computed = 0
        """The number of tokens that were computed, without padding."""

    @property
    def rows_at_once(self) -> int:
        """How many rows are projected to logits at once: a power of two, so that sizes recur."""
        rows = max(1, self.budget.logit_bytes // (4 * self.vocabulary))
        return 1 << (rows.bit_length() - 1)

    def launch_batches(self, windows: Mapping[int, Window]) -> Iterator[LaunchedBatch]:
        """Launches windows, given by request index; yields each batch after its launch.

        A window is `(tokens read, tokens predicted)`. Subclasses implement this method.
        """
        raise NotImplementedError

    def score(self, portions: Iterable[Mapping[int, Window]]) -> Iterator[NumberedScore]:
        """Yields the request index and the score of each window, in the order of the batches.

        A score is `(log-probability, is_greedy)`. If memory runs out, the budget is halved and the
        remaining windows are launched again. Raises `ModelError` if memory runs out even with a
        budget of one token.

        Args:
            portions: windows by request index. A window consists of the tokens that are read, and
                the tokens that its last positions predict. Portions are requested one by one, while
                the device computes.
        """
        pending: deque[LaunchedBatch] = deque()
        for portion in portions:
            remaining = dict(portion)
            while remaining:
                ran_out: BaseException | None = None
                try:
                    for launched in self.launch_batches(dict(remaining)):
                        pending.append(launched)
                        for number in launched.numbers:
                            del remaining[number]
                        if len(pending) > MAX_PENDING_BATCHES:
                            yield from pending.popleft().finish()
                except (RuntimeError, MemoryError) as error:
                    if not is_out_of_memory(error):
                        raise
                    ran_out = error.with_traceback(None)
                if ran_out is not None:
                    while pending:
                        yield from pending.popleft().finish()
                    self._shrink_budget(ran_out)
        while pending:
            yield from pending.popleft().finish()

    def _shrink_budget(self, ran_out: BaseException) -> None:
        """Halves the budget; raises `ModelError` if it is one token already."""
        if self.budget.tokens == 1:
            raise ModelError(
                "memory runs out even with one request at a time. Use a smaller max_length, a "
                f"dtype of fewer bytes, or a device with more memory. ({ran_out})"
            ) from ran_out
        self.budget.halve()

    def copy_arrays(self, *arrays: Any) -> list[Tensor]:
        """Copies 1-D integer arrays to the device in one transfer; returns a tensor for each."""
        whole = np.concatenate([np.asarray(array, dtype=np.int64) for array in arrays])
        return list(copy_to_device(whole, self.device).split([len(array) for array in arrays]))


class TreeScorer(Scorer):
    """Scores over prefix trees, which compute every distinct prefix once.

    With a `plain` scorer, a portion is passed to that if sharing does not pay: without shared
    prefixes, a tree costs a little more than rows, unless the rows need padding.
    """

    def __init__(
        self,
        network: Network,
        device: torch.device,
        budget: TokenBudget,
        vocabulary: int,
        max_requests: int | None,
        kernels: bool,
        plain: PlainScorer | None = None,
    ) -> None:
        """Prepares to score; for parameters not listed here see `PlainScorer`.

        Args:
            kernels: whether to use our attention kernel for trees.
            plain: the scorer for portions in which sharing does not pay; None to use trees always.
        """
        super().__init__(device, budget, vocabulary)
        self.network = network
        self.max_requests = max_requests
        self.kernels = kernels
        self.plain = plain
        self.last: TreeLayout | None = None

    def launch_batches(self, windows: Mapping[int, Window]) -> Iterator[LaunchedBatch]:
        """Launches windows as prefix trees, or by the plain scorer if sharing does not pay.

        Yields each batch after its launch.
        """
        numbers = list(windows)
        ordered = SortedSequences.of(
            [windows[n][0] for n in numbers], [len(windows[n][1]) for n in numbers]
        )
        if self.plain is None or self.sharing_pays(ordered):
            yield from self._launch_trees(windows, numbers, ordered)
        else:
            before = self.plain.computed
            yield from self.plain.launch_batches(windows)
            self.computed += self.plain.computed - before

    def sharing_pays(self, ordered: SortedSequences) -> bool:
        """Returns whether prefix trees cost less than one padded row per request."""
        tree = TREE_COST_FACTOR.get(self.device.type, TREE_COST_FACTOR["other"]) * ordered.distinct
        return tree <= ordered.padded(self.budget.tokens, self.max_requests)

    def _launch_trees(
        self, windows: Mapping[int, Window], numbers: list[int], ordered: SortedSequences
    ) -> Iterator[LaunchedBatch]:
        """Launches the sorted windows as prefix trees; yields each batch once it is launched.

        `ordered` are the tokens that the windows read, and `numbers` their request indices, in the
        order in which they were given to `SortedSequences.of`.
        """
        previous = self.last = None
        limits = {"max_tokens": self.budget.tokens, "max_requests": self.max_requests}
        for batch in plan(ordered, **limits):
            count = len(batch.tokens) - batch.num_cached
            self.computed += count
            if self.device.type in ROUNDED_SIZE_DEVICES:
                batch = pad_batch(batch, max(count, min(round_up(count), self.budget.tokens)))
            self.last = tree = previous = TreeLayout(batch, kernels=self.kernels, previous=previous)
            numbers_in_batch = [numbers[i] for i in batch.requests]
            targets = np.concatenate([windows[n][1] for n in numbers_in_batch])
            counts = [len(windows[n][1]) for n in numbers_in_batch]
            yield LaunchedBatch(numbers_in_batch, counts, self.run(tree, targets))

    def run(self, tree: TreeLayout, targets: Any) -> Tensor:
        """Runs one tree; returns the scores (2, P) of the tokens `targets` (P) of its requests.

        The first row contains log-probabilities, the second 1 for tokens that were the most likely
        and 0 for others. The order is that of `targets`: request after request.
        """
        scored = ScoredPositions.of(tree.batch.scored - tree.batch.num_cached, targets)
        if self.device.type in ROUNDED_SIZE_DEVICES:
            scored = scored.padded_to(round_up_to_pieces(len(scored.positions), self.rows_at_once))
        tokens, position, rows, row, target, inverse = self.copy_arrays(
            tree.tokens, tree.position, *scored
        )
        with torch.inference_mode(), use_layout(self.network.configs, tree):
            hidden = self.network.hidden(tokens[None], position[None])[0]
            hidden = hidden.index_select(0, rows.to(hidden.device))
            cuts = split_into_pieces(scored.row, len(scored.positions), self.rows_at_once)
            scores = self.network.score_rows(hidden, row, target, cuts)
            return stack_scores(scores, inverse)


class PlainScorer(Scorer):
    """Scores each request in its own row; requests that read the same tokens share a row."""

    def __init__(
        self,
        network: Network | None,
        device: torch.device,
        budget: TokenBudget,
        vocabulary: int,
        max_requests: int | None,
        logits: Callable[[Tensor], Tensor] | None = None,
        softmax_dtype: torch.dtype | None = None,
    ) -> None:
        """Prepares to score.

        Args:
            network: the model as trunk and head; None if it cannot be split.
            device: where tokens are put.
            budget: the limits of a batch.
            vocabulary: the number of tokens of the model.
            max_requests: the maximum number of rows per batch, or None for no limit.
            logits: the model as a function from padded tokens (B, T) to all logits (B, T, V), for
                models that cannot be split. If None, only scored positions are projected to logits.
            softmax_dtype: the dtype of the log-softmax of `logits`; None for float32.
        """
        super().__init__(device, budget, vocabulary)
        self.network = network
        self.max_requests = max_requests
        self.logits = logits
        self.softmax_dtype = softmax_dtype or torch.float32

    def launch_batches(self, windows: Mapping[int, Window]) -> Iterator[LaunchedBatch]:
        """Launches windows as padded rows, longest first; yields each batch after its launch."""
        requests_by_input: dict[tuple[int, ...], list[int]] = {}
        for n in windows:
            requests_by_input.setdefault(tuple(windows[n][0]), []).append(n)
        inputs = sorted(requests_by_input, key=len, reverse=True)
        limit = self.budget.tokens
        if self.logits is not None:
            limit = min(limit, max(1, 8 * self.budget.logit_bytes // (4 * self.vocabulary)))
        for first, last in split_rows_into_batches(
            [len(read) for read in inputs], limit, self.max_requests
        ):
            yield self._launch(windows, inputs[first:last], requests_by_input)

    def _launch(
        self,
        windows: Mapping[int, Window],
        inputs: list[tuple[int, ...]],
        requests_by_input: dict[tuple[int, ...], list[int]],
    ) -> LaunchedBatch:
        """Launches one padded batch of distinct `inputs`, longest first, for all their requests.

        `requests_by_input` gives the indices of the requests that read each input.
        """
        width = len(inputs[0])
        padded = np.zeros((len(inputs), width), dtype=np.int64)
        numbers_in_batch: list[int] = []
        positions = []
        for r, read in enumerate(inputs):
            padded[r, : len(read)] = read
            for n in requests_by_input[read]:
                numbers_in_batch.append(n)
                positions.append(r * width + np.arange(len(read) - len(windows[n][1]), len(read)))
        targets = np.concatenate([windows[n][1] for n in numbers_in_batch])
        scored = ScoredPositions.of(np.concatenate(positions), targets)
        tokens, rows, row, target, inverse = self.copy_arrays(padded.reshape(-1), *scored)
        cuts = split_into_pieces(scored.row, len(scored.positions), self.rows_at_once)
        with torch.inference_mode():
            batch = tokens.view(padded.shape)
            if self.logits is None and self.network is not None:
                hidden = self.network.hidden(batch).flatten(0, 1)
                hidden = hidden.index_select(0, rows.to(hidden.device))
                scores = self.network.score_rows(hidden, row, target, cuts)
            else:
                assert self.logits is not None
                all_logits = self.logits(batch)
                # Prompt tuning puts virtual tokens before the text; their logits are dropped.
                all_logits = all_logits[:, all_logits.shape[1] - width :].flatten(0, 1)
                scores = score_in_pieces(
                    lambda a, b: all_logits.index_select(0, rows[a:b].to(all_logits.device)),
                    row,
                    target,
                    cuts,
                    self.softmax_dtype,
                )
            self.computed += sum(map(len, inputs))
            counts = [len(windows[n][1]) for n in numbers_in_batch]
            return LaunchedBatch(numbers_in_batch, counts, stack_scores(scores, inverse))
