"""Order requests so that shared prefixes are computed once.

Requests to score often begin alike: the four choices of a question, or a thousand questions behind
one set of solved examples. Sorted by their tokens, requests that begin alike stand together, and a
run of them packs into one prefix tree in which every distinct prefix has exactly one node. A model
that lets each node attend to its ancestors alone then computes every request as if it stood by
itself, and every shared token once.

A tree is laid out in preorder, so the descendants of node `j` are exactly the nodes from `j` up to
`end[j]`. That one array is all an attention mask needs (`ancestor_mask`). What neighbouring batches
share is still computed once. `plan` splits a long common beginning off as their `stem`, to be run
by itself and kept; `plan_carried` needs no run of its own: the nodes that the next batch shares
with this one are handed on to it.

Nothing here knows about models or text: tokens are integers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MIN_STEM = 32


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
    def of(cls, sequences: Sequence[Sequence[int]], scored: Sequence[int]) -> Ordered:
        arrays = _as_arrays(sequences, scored)
        order = sort_order(arrays)
        return cls(arrays, scored, order, _common_prefixes(arrays, order))

    @property
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
    """Some requests as one packed prefix tree.

    All arrays over nodes are in preorder. `position` counts from the beginning of the request, so
    with a stem the first nodes of the tree stand at position `len(stem)`.
    """

    requests: Ints
    """The requests of this batch, as indices into the planned sequences, in sorted order."""
    stem: Ints
    """Tokens before the tree, shared by all requests here and by neighbouring batches."""
    tokens: Ints
    """The token of every node."""
    position: Ints
    """Depth of every node, the stem counted in."""
    parent: Ints
    """The node before every node, or -1 at the root (or right behind the stem)."""
    end: Ints
    """One past the last descendant of every node."""
    scored: Ints
    """The nodes whose next-token distributions score the requests, request after request."""
    offsets: Ints
    """Request `i` of `requests` is scored by `scored[offsets[i]:offsets[i + 1]]`."""
    given: int = 0
    """How many nodes, the first ones, were computed with the batch before (`plan_carried`)."""
    kept: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The nodes of this batch that the next one is given, in their order."""

    @property
    def roots(self) -> Ints:
        """The nodes without a parent; the trees under them stand side by side, each contiguous."""
        return np.flatnonzero(self.parent < 0)

    def nodes_of(self, request: int) -> Ints:
        """The nodes that score the request at place `request` of this batch."""
        return self.scored[self.offsets[request] : self.offsets[request + 1]]


def ancestor_mask(end: Ints) -> Bools:
    """Which nodes see which: `mask[i, j]` holds when `j` is `i` or an ancestor of `i`."""
    node = np.arange(len(end))
    return (node[None, :] <= node[:, None]) & (node[:, None] < end[None, :])


def plan(
    sequences: Sequence[Sequence[int]],
    scored: Sequence[int],
    *,
    max_tokens: int | None = 4096,
    max_requests: int | None = None,
    min_stem: int = MIN_STEM,
    share: bool = True,
) -> list[Batch]:
    """Sort sequences, cut them into batches and pack every batch as a prefix tree.

    Args:
        sequences: what the model reads for each request, context and continuation without the
            continuation's last token.
        scored: for each request, how many of its last positions are to be read off.
        max_tokens: most tree nodes in a batch (a longer request stands alone), or no such limit.
        max_requests: most requests in a batch, or no such limit.
        min_stem: shortest beginning worth splitting off as a stem.
        share: False gives every request a tree of its own, for comparison.
    """
    ordered = Ordered.of(sequences, scored)
    arrays, order = ordered.arrays, ordered.order
    common = ordered.common if share else np.zeros(len(order), dtype=np.int64)
    cuts = _cut(arrays, order, common, max_tokens, max_requests)
    stems = _stems(arrays, order, common, scored, cuts, min_stem)
    return [
        _pack(arrays, order[first:last], common[first:last], scored, stem)
        for (first, last), stem in zip(cuts, stems, strict=True)
    ]


def plan_carried(
    ordered: Ordered, *, max_tokens: int, max_requests: int | None = None
) -> Iterator[Batch]:
    """As `plan`, but a batch's first nodes may be `given` by the batch before, which `kept` them.

    Batches are packed as they are asked for, so that a device can work on one meanwhile.
    """
    arrays, scored = ordered.arrays, ordered.scored
    order, common = ordered.order, ordered.common
    free = np.array([len(arrays[i]) - scored[i] for i in order], dtype=np.int64)
    cuts = _cut(arrays, order, common, max_tokens, max_requests, free)
    given = [_shared_with_before(first, last, common, free) for first, last in cuts]
    for k, (first, last) in enumerate(cuts):
        batch = _pack(arrays, order[first:last], common[first:last], scored, order[:0])
        kept = _path(batch, len(batch.tokens) - 1)[: given[k + 1]] if k + 1 < len(cuts) else None
        yield replace(batch, given=given[k], kept=batch.kept if kept is None else kept)


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


def _shared_with_before(first: int, last: int, common: Ints, free: Ints) -> int:
    """How many tokens the batch from `first` to `last` can take over from the one before it.

    Positions to be scored must be run, so a request that ends early bounds what is taken.
    """
    if first == 0:
        return 0
    shared = np.minimum.accumulate(common[first:last])
    bounds = free[first:last][shared > free[first:last]]
    return int(min(shared[0], bounds.min())) if len(bounds) else int(shared[0])


def _path(batch: Batch, node: int) -> Ints:
    """The nodes from the root to a node."""
    return np.flatnonzero((batch.end > node) & (np.arange(len(batch.end)) <= node))


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
    """For every sequence in order, how many tokens it shares with the one before it."""
    common = np.zeros(len(order), dtype=np.int64)
    for i in range(1, len(order)):
        common[i] = _common_prefix(arrays[order[i - 1]], arrays[order[i]])
    return common


def _cut(
    arrays: Sequence[Ints],
    order: Ints,
    common: Ints,
    max_tokens: int | None,
    max_requests: int | None,
    free: Ints | None = None,
) -> list[tuple[int, int]]:
    """Cut the ordered sequences into runs that keep both limits.

    With `free`, the tokens of each before its first scored one, a run's first sequence brings only
    what it does not share with the sequence before.
    """
    cuts: list[tuple[int, int]] = []
    first, nodes = 0, 0
    for i, index in enumerate(order):
        length = len(arrays[index])
        new = length if i == first else length - int(common[i])
        over = max_tokens is not None and nodes + new > max_tokens
        full = max_requests is not None and i - first >= max_requests
        if i > first and (over or full):
            cuts.append((first, i))
            first, nodes, new = i, 0, length
            if free is not None:
                new = length - min(int(common[i]), int(free[i]))
        nodes += new
    if len(order):
        cuts.append((first, len(order)))
    return cuts


def _stems(
    arrays: Sequence[Ints],
    order: Ints,
    common: Ints,
    scored: Sequence[int],
    cuts: list[tuple[int, int]],
    min_stem: int,
) -> list[Ints]:
    """Find the beginnings that neighbouring batches share, one for every batch.

    A stem must leave every scored position to the tree. A run of batches goes on as long as the
    beginning common to all of them stays above half of what the run began with, so that one loose
    neighbour does not cost a long stem.
    """
    none = np.zeros(0, dtype=np.int64)
    stems = [none] * len(cuts)
    inner = []
    for first, last in cuts:
        free = min(len(arrays[i]) - scored[i] for i in order[first:last])
        shared = common[first + 1 : last]
        inner.append(min(free, int(shared.min())) if len(shared) else free)
    run, longest = 0, 0
    size = inner[0] if inner else 0
    for k in range(1, len(cuts) + 1):
        joint = min(size, inner[k], int(common[cuts[k][0]])) if k < len(cuts) else 0
        longest = joint if k == run + 1 else longest
        if joint >= min_stem and 2 * joint >= longest:
            size = joint
            continue
        if k > run + 1:
            stems[run:k] = [arrays[order[cuts[run][0]]][:size]] * (k - run)
        run, size = k, inner[k] if k < len(cuts) else 0
    return stems


def _pack(
    arrays: Sequence[Ints], requests: Ints, common: Ints, scored: Sequence[int], stem: Ints
) -> Batch:
    """Lay out the prefix tree of sorted sequences behind a stem they share."""
    skip = len(stem)
    lengths = np.array([len(arrays[i]) - skip for i in requests])
    known = np.maximum(common - skip, 0)
    known[0] = 0
    bases = np.concatenate([[0], np.cumsum(lengths - known)])
    total = int(bases[-1])
    tokens = np.concatenate([arrays[i][skip + k :] for i, k in zip(requests, known, strict=True)])
    position = np.arange(total) + np.repeat(skip + known - bases[:-1], lengths - known)
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
    return Batch(requests, stem, tokens, position, parent, end, nodes, offsets)


def distinct_tokens(batches: Sequence[Batch]) -> int:
    """How many tokens a model runs for a plan, a stem kept from one batch to the next once."""
    return sum(len(batch.tokens) + new for batch, new in zip(batches, _new(batches), strict=True))


def _new(batches: Sequence[Batch]) -> Iterator[int]:
    held = np.zeros(0, dtype=np.int64)
    for batch in batches:
        yield 0 if np.array_equal(held, batch.stem) else len(batch.stem)
        held = batch.stem
