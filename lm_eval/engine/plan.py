"""Order requests so that shared prefixes are computed once.

Requests to score often begin alike: the four choices of a question, or a thousand questions behind
one set of solved examples. Sorted by their tokens, requests that begin alike stand together, and a
run of them packs into one prefix tree in which every distinct prefix has exactly one node. A model
that lets each node attend to its ancestors alone then computes every request as if it stood by
itself, and every shared token once.

A tree is laid out in preorder, so the descendants of node `j` are exactly the nodes from `j` up to
`end[j]`. That one array is all an attention mask needs (`ancestor_mask`). What neighbouring batches
share is still computed once: the nodes that the next batch shares with this one are handed on.

Nothing here knows about models or text: tokens are integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Ordered:
    """Sequences in the order of their tokens, so that those which begin alike are neighbours."""

    arrays: list[Ints]
    scored: Sequence[int]
    """For each sequence, how many of its last positions are to be read off."""
    order: Ints
    common: Ints
    """For every sequence in order, how many tokens it shares with the one before it."""

    @classmethod
    def of(
        cls, sequences: Sequence[Sequence[int]], scored: Sequence[int], *, share: bool = True
    ) -> Ordered:
        """Put what a model reads for each request, and how much of its end is scored, in order.

        `share=False` has no sequence share with its neighbour, for comparison.
        """
        arrays = _as_arrays(sequences, scored)
        order = sort_order(arrays)
        none = np.zeros(len(order), dtype=np.int64)
        return cls(arrays, scored, order, _common_prefixes(arrays, order) if share else none)

    @cached_property
    def lengths(self) -> Ints:
        return np.array([len(self.arrays[i]) for i in self.order], dtype=np.int64)

    @property
    def distinct(self) -> int:
        """Tokens that are run where every prefix is computed once."""
        return int(self.lengths.sum() - self.common.sum())

    def padded(self, max_tokens: int, max_requests: int | None = None) -> int:
        """Tokens that are run where every sequence is a row of its own, equal ones once."""
        lengths = self.lengths
        again = (self.common[1:] == lengths[1:]) & (lengths[1:] == lengths[:-1])
        widths = np.sort(np.concatenate([lengths[:1], lengths[1:][~again]]))[::-1]
        cuts = cut_rows(widths, max_tokens, max_requests)
        return sum(int(widths[first]) * (last - first) for first, last in cuts)


@dataclass(frozen=True)
class Batch:
    """Some requests as one packed prefix tree. All arrays over nodes are in preorder."""

    requests: Ints
    """The requests of this batch, as indices into the planned sequences, in sorted order."""
    tokens: Ints
    """The token of every node."""
    position: Ints
    """Depth of every node."""
    parent: Ints
    """The node before every node, or -1 at a root."""
    end: Ints
    """One past the last descendant of every node."""
    scored: Ints
    """The nodes whose next-token distributions score the requests, request after request."""
    offsets: Ints
    """Request `i` of `requests` is scored by `scored[offsets[i]:offsets[i + 1]]`."""
    given: int = 0
    """How many nodes, the first ones, were computed with the batch before, which kept them."""
    kept: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The nodes of this batch that the next one is given, in their order."""

    @property
    def roots(self) -> Ints:
        """The nodes without a parent; the trees under them stand side by side, each contiguous."""
        return np.flatnonzero(self.parent < 0)

    def nodes_of(self, request: int) -> Ints:
        """The nodes that score the request at place `request` of this batch."""
        return self.scored[self.offsets[request] : self.offsets[request + 1]]

    def path(self, node: int) -> Ints:
        """The nodes from the root to a node."""
        return np.append(self.ancestors(node), node)

    def ancestors(self, node: int) -> Ints:
        """The nodes above a node, from the root down."""
        return np.flatnonzero(self.end[:node] > node)


def ancestor_mask(end: Ints) -> Bools:
    """Which nodes see which: `mask[i, j]` holds when `j` is `i` or an ancestor of `i`."""
    node = np.arange(len(end))
    return (node[None, :] <= node[:, None]) & (node[:, None] < end[None, :])


def plan(
    ordered: Ordered, *, max_tokens: int | None = None, max_requests: int | None = None
) -> Iterator[Batch]:
    """Cut ordered sequences into batches and pack every batch as a prefix tree.

    Batches are packed as they are asked for, so that a device can work on one meanwhile.

    Args:
        ordered: the sequences.
        max_tokens: most nodes to be run in a batch (a longer request stands alone), or no limit.
        max_requests: most requests in a batch, or no limit.
    """
    runs = _cut(ordered, max_tokens, max_requests)
    for run, following in zip_longest(runs, runs[1:]):
        here = slice(run.first, run.last)
        batch = _pack(ordered.arrays, ordered.order[here], ordered.common[here], ordered.scored)
        handed_on = 0 if following is None else following.given
        kept = batch.path(len(batch.tokens) - 1)[:handed_on]
        yield replace(batch, given=run.given, kept=kept)


def cut_rows(
    lengths: Sequence[int] | Ints, max_tokens: int, max_requests: int | None = None
) -> list[tuple[int, int]]:
    """Cut rows, the longest first, into batches: padded, each has at most so many tokens."""
    cuts = []
    first = 0
    while first < len(lengths):
        fitting = max(1, max_tokens // int(lengths[first]))
        last = min(len(lengths), first + min(fitting, max_requests or fitting))
        cuts.append((first, last))
        first = last
    return cuts


def _as_arrays(sequences: Sequence[Sequence[int]], scored: Sequence[int]) -> list[Ints]:
    made: dict[int, Ints] = {}  # equal requests often come as one and the same object
    for sequence in sequences:
        if id(sequence) not in made:
            made[id(sequence)] = np.asarray(sequence, dtype=np.int64)
    arrays = [made[id(sequence)] for sequence in sequences]
    for array, count in zip(arrays, scored, strict=True):
        if not 0 < count <= len(array):
            raise ValueError(f"cannot score {count} positions of a sequence of {len(array)} tokens")
    return arrays


def sort_order(arrays: Sequence[Ints]) -> Ints:
    """Order sequences token by token, a prefix before what continues it; equals keep their order.

    Big-endian bytes compare as the numbers they stand for, so the sort runs on plain bytes.
    """
    made = {id(array): array.astype(">u4").tobytes() for array in arrays}
    keys = [made[id(array)] for array in arrays]
    return np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.int64)


def _common_prefix(one: Ints, two: Ints) -> int:
    size = min(len(one), len(two))
    if one is two:
        return size
    different = one[:size] != two[:size]
    where = int(different.argmax()) if size else 0
    return where if size and different[where] else size


def _common_prefixes(arrays: Sequence[Ints], order: Ints) -> Ints:
    common = np.zeros(len(order), dtype=np.int64)
    for i in range(1, len(order)):
        common[i] = _common_prefix(arrays[order[i - 1]], arrays[order[i]])
    return common


@dataclass
class _Run:
    """Neighbours that become one batch: from `first` up to `last`."""

    first: int
    last: int
    given: int
    """Tokens taken over from the batch before."""
    reach: int
    """Tokens that all its sequences share with that batch."""
    nodes: int
    """Nodes to be run."""


def _cut(ordered: Ordered, max_tokens: int | None, max_requests: int | None) -> list[_Run]:
    """Cut the ordered sequences into runs that keep both limits.

    Positions to be scored must be run, so a sequence whose scored end lies in what the batch before
    has computed bounds what is taken over from it.
    """
    free = ordered.lengths - np.array([ordered.scored[i] for i in ordered.order], dtype=np.int64)
    runs: list[_Run] = []
    numbers = zip(ordered.lengths.tolist(), ordered.common.tolist(), free.tolist(), strict=True)
    for i, (length, shared, unscored) in enumerate(numbers):
        if runs:
            run = runs[-1]
            reach = min(run.reach, shared)
            given = min(run.given, unscored) if unscored < reach else run.given
            nodes = run.nodes + length - shared + run.given - given
            over = max_tokens is not None and nodes > max_tokens
            full = max_requests is not None and i - run.first >= max_requests
            if not over and not full:
                runs[-1] = _Run(run.first, i + 1, given, reach, nodes)
                continue
        given = min(shared, unscored)
        runs.append(_Run(i, i + 1, given, shared, length - given))
    return runs


def _pack(arrays: Sequence[Ints], requests: Ints, common: Ints, scored: Sequence[int]) -> Batch:
    """Lay out the prefix tree of sorted sequences."""
    lengths = np.array([len(arrays[i]) for i in requests])
    known = np.append(0, common[1:])
    bases = np.concatenate([[0], np.cumsum(lengths - known)])
    total = int(bases[-1])
    tokens = np.concatenate([arrays[i][k:] for i, k in zip(requests, known, strict=True)])
    position = np.arange(total) + np.repeat(known - bases[:-1], lengths - known)
    parent = np.arange(-1, total - 1)
    end = np.full(total, total)
    path = np.zeros(int(lengths.max()), dtype=np.int64)
    counts = np.array([scored[i] for i in requests])
    offsets = np.concatenate([[0], np.cumsum(counts)])
    nodes = np.empty(int(offsets[-1]), dtype=np.int64)
    before = 0
    for i in range(len(requests)):
        base, k, length = int(bases[i]), int(known[i]), int(lengths[i])
        end[path[k:before]] = base
        if k < length:
            parent[base] = path[k - 1] if k else -1
            path[k:length] = np.arange(base, base + length - k)
        nodes[offsets[i] : offsets[i + 1]] = path[length - counts[i] : length]
        before = length
    return Batch(requests, tokens, position, parent, end, nodes, offsets)
