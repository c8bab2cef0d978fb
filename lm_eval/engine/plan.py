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
from itertools import chain, zip_longest

import numpy as np
from numpy.typing import NDArray

from lm_eval.engine.progress import stage

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

COMPARED = 1 << 20
"""Tokens that are compared at once, which bounds memory."""


@dataclass(frozen=True)
class Ordered:
    """Sequences in the order of their tokens, so that those which begin alike are neighbours.

    There may be millions of tokens, and a device waits for them: they lie in one array, and what is
    asked of them is asked of all sequences at once.
    """

    order: Ints
    """The sequences' numbers, in order. So are the arrays below."""
    begins: Ints
    """Where each sequence begins among all tokens; equal ones may be one and the same."""
    lengths: Ints
    scored: Ints
    """How many of its last positions are to be read off."""
    common: Ints
    """How many tokens it shares with the one before it."""
    tokens: Ints

    @classmethod
    @stage("Planning batches")
    def of(
        cls, sequences: Sequence[Sequence[int]], scored: Sequence[int], *, share: bool = True
    ) -> Ordered:
        """Put what a model reads for each request, and how much of its end is scored, in order.

        `share=False` has no sequence share with its neighbour, for comparison.
        """
        number: dict[int, int] = {}  # equal requests often come as one and the same object
        which = [number.setdefault(id(sequence), len(number)) for sequence in sequences]
        held = {id(sequence): sequence for sequence in sequences}
        length = np.array([len(sequence) for sequence in held.values()], dtype=np.int64)
        begin = _begins(length)
        tokens = np.fromiter(chain.from_iterable(held.values()), np.int64, int(length.sum()))
        for place, count in zip(which, scored, strict=True):
            if not 0 < count <= length[place]:
                raise ValueError(
                    f"cannot score {count} positions of a sequence of {length[place]} tokens"
                )
        # Big-endian bytes compare as the numbers they stand for; a prefix comes first.
        raw = tokens.astype(">u4").tobytes()
        cuts = zip((4 * begin).tolist(), (4 * (begin + length)).tolist(), strict=True)
        keys = [raw[first:last] for first, last in cuts]
        order = np.array(sorted(range(len(which)), key=lambda i: keys[which[i]]), dtype=np.int64)
        sorted_which = np.array(which, dtype=np.int64)[order]
        begins, lengths = begin[sorted_which], length[sorted_which]
        common = _common_prefixes(tokens, begins, lengths) if share else np.zeros_like(order)
        return cls(order, begins, lengths, np.array(scored, dtype=np.int64)[order], common, tokens)

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

    def nodes_of(self, request: int) -> Ints:
        """The nodes that score the request at place `request` of this batch."""
        return self.scored[self.offsets[request] : self.offsets[request + 1]]

    def path(self, node: int) -> Ints:
        """The nodes from the root to a node."""
        return np.append(self.ancestors(node), node)

    def ancestors(self, node: int) -> Ints:
        """The nodes above a node, from the root down."""
        return _above(self.end, node)


def _above(end: Ints, node: int) -> Ints:
    return np.flatnonzero(end[:node] > node)


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
        batch = _pack(ordered, run.first, run.last)
        handed_on = 0 if following is None else following.given
        kept = batch.path(len(batch.tokens) - 1)[:handed_on]
        yield replace(batch, given=run.given, kept=kept)


def fill_up(batch: Batch, nodes: int) -> Batch:
    """The same with so many nodes to be run, those to spare being a text that nobody asks about."""
    total = len(batch.tokens)
    spare = nodes - (total - batch.given)
    zeros = np.zeros(spare, dtype=np.int64)
    parent = np.arange(total - 1, total + spare - 1)
    parent[:1] = -1
    return replace(
        batch,
        tokens=np.append(batch.tokens, zeros),
        position=np.append(batch.position, zeros),
        parent=np.append(batch.parent, parent),
        end=np.append(batch.end, zeros + total + spare),
    )


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


def _begins(lengths: Ints) -> Ints:
    """Where stretches of these lengths begin, laid end to end."""
    return np.cumsum(lengths) - lengths


def stretches(begins: Ints, lengths: Ints) -> Ints:
    """The numbers `begins[i]`, `begins[i] + 1`, … of each stretch, stretch after stretch."""
    shift = begins - _begins(lengths)
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shift, lengths)


def _common_prefixes(tokens: Ints, begins: Ints, lengths: Ints) -> Ints:
    """How many tokens each sequence has in common with the one before it."""
    sizes = np.minimum(lengths[:-1], lengths[1:])
    common = sizes.copy()
    different = np.flatnonzero(begins[:-1] != begins[1:])
    portion = np.cumsum(sizes[different]) // COMPARED
    for pairs in np.split(different, np.flatnonzero(np.diff(portion)) + 1):
        size = sizes[pairs]
        one = tokens[stretches(begins[pairs], size)]
        two = tokens[stretches(begins[pairs + 1], size)]
        unlike = np.flatnonzero(one != two)
        first = _begins(size)
        found = np.append(unlike, len(one))[np.searchsorted(unlike, first)]
        common[pairs] = np.minimum(found - first, size)
    whole = np.zeros_like(lengths)
    whole[1:] = common
    return whole


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
    free = ordered.lengths - ordered.scored
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


def _pack(ordered: Ordered, first: int, last: int) -> Batch:
    """Lay out the prefix tree of neighbours `first` up to `last`.

    Each sequence adds what it does not share with the one before it: its nodes, one after another,
    hang on an earlier sequence's, its `branch`. (One that adds nothing has no nodes.)
    """
    lengths, scored = ordered.lengths[first:last], ordered.scored[first:last]
    known: Ints = np.append(0, ordered.common[first + 1 : last])
    added = lengths - known
    base = _begins(added)
    total = int(added.sum())
    tokens = ordered.tokens[stretches(ordered.begins[first:last] + known, added)]
    branch, end = _branches(known, added)
    hangs = np.flatnonzero((added > 0) & (known > 0))
    parent = np.arange(-1, total - 1)
    parent[base[added > 0]] = -1
    parent[base[hangs]] = (base - known)[branch[hangs]] + known[hangs] - 1
    return Batch(
        requests=ordered.order[first:last],
        tokens=tokens,
        position=stretches(known, added),
        parent=parent,
        end=end,
        scored=_scored_nodes(lengths, scored, known, base, branch, end),
        offsets=np.append(0, np.cumsum(scored)),
    )


def _scored_nodes(
    lengths: Ints, scored: Ints, known: Ints, base: Ints, branch: Ints, end: Ints
) -> Ints:
    """The nodes of each sequence's last positions: its own, or of what it hangs on."""
    which = np.repeat(np.arange(len(lengths)), scored)
    depth = stretches(lengths - scored, scored)
    owner = np.where(depth < known[which], branch[which], which)
    nodes: Ints = base[owner] + depth - known[owner]
    beyond = np.flatnonzero(depth < known[owner])  # even further up, which is rare
    cuts = np.flatnonzero(np.diff(which[beyond])) + 1
    for places in np.split(beyond, cuts) if len(beyond) else []:
        sequence = which[places[0]]
        above = branch[sequence]
        hook = int(base[above] + known[sequence] - 1 - known[above])
        nodes[places] = np.append(_above(end, hook), hook)[depth[places]]
    return nodes


@dataclass(slots=True)
class _Held:
    """A sequence that later ones may hang on: its nodes lie at depths from `depth` to `reach`."""

    sequence: int
    depth: int
    node: int
    """The one at `depth`."""
    reach: int
    """It shrinks to what later sequences share."""


def _branches(known: Ints, added: Ints) -> tuple[Ints, Ints]:
    """For each sequence the one that its nodes hang on, and for each node where its subtree ends.

    What lies above a sequence's own nodes belongs to earlier ones that know less than it does. So
    those are held, each with the depth down to which later ones share it, and let go when one comes
    that knows no more than they; whatever it does not share ends with it.
    """
    branch = np.zeros(len(known), dtype=np.int64)
    held: list[_Held] = []
    starts: list[int] = []  # of stretches of nodes whose subtrees end at one place, and that place
    ends: list[int] = []
    here = 0
    for i, (shared, count) in enumerate(zip(known.tolist(), added.tolist(), strict=True)):
        while held and held[-1].depth >= shared:
            starts.append(held.pop().node)
            ends.append(here)
        if held:
            above = held[-1]
            branch[i] = above.sequence
            if shared < above.reach:
                starts.append(above.node + shared - above.depth)
                ends.append(here)
                above.reach = shared
        if count:
            held.append(_Held(i, shared, here, shared + count))
            here += count
    starts += [above.node for above in held]
    ends += [here] * len(held)
    order = np.argsort(starts)
    cuts = np.append(np.array(starts, dtype=np.int64)[order], here)
    return branch, np.repeat(np.array(ends, dtype=np.int64)[order], np.diff(cuts))
