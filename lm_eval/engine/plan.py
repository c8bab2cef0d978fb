"""Sorts requests and packs them into batches so that shared prefixes are computed once.

Requests to score often share a prefix: the four choices of one question, or a thousand questions
after the same few-shot examples. After sorting the requests by their tokens, those with a common
prefix are neighbors. A slice of neighbors is packed into one prefix tree, in which every distinct
prefix has exactly one node. If the model lets each node attend only to itself and its ancestors,
every request gets the scores it would get alone, and every shared token is computed once.

The nodes of a tree are stored in preorder, so the descendants of node `j` are the nodes `j + 1` to
`end[j] - 1`. The array `end` therefore determines the whole attention mask (`ancestor_mask`).
Consecutive batches can share a prefix too: a batch keeps the keys and values of the nodes that the
next batch shares (`Batch.kept_for_next`), and the next batch does not compute them again
(`Batch.num_cached`).

This module is independent of models and text: tokens are integers.
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

TOKENS_PER_COMPARISON = 1 << 20
"""Approximate number of tokens compared in one numpy operation. This limits memory use."""


MIN_NODES_REUSED = 64
"""`StepwisePlan` lets a batch compute fewer nodes than this again: that takes less time than to
join them with the others."""


@dataclass(frozen=True)
class SortedSequences:
    """Token sequences sorted lexicographically, so that common prefixes are between neighbors.

    There can be millions of tokens, and the device waits while they are sorted. All tokens are
    therefore stored in one array, and numpy operations handle all sequences at once.
    """

    order: Ints
    """The original index of each sequence, in sorted order. All arrays below but `tokens` have this
    order too."""
    begins: Ints
    """The index in `tokens` at which each sequence begins. Sequences that are the same Python
    object share one copy of their tokens."""
    lengths: Ints
    """The number of tokens of each sequence."""
    scored: Ints
    """The number of last positions of each sequence whose predictions are scored."""
    common: Ints
    """The number of leading tokens that each sequence shares with the sequence before it."""
    tokens: Ints
    """The tokens of all distinct sequence objects, concatenated."""

    @classmethod
    @stage("Planning batches")
    def of(
        cls, sequences: Sequence[Sequence[int]], scored: Sequence[int], *, share: bool = True
    ) -> SortedSequences:
        """Returns the token sequences in sorted order, with the prefixes that neighbors share.

        Args:
            sequences: the tokens that the model reads for each request.
            scored: for each request, the number of last positions whose predictions are scored.
            share: False treats all sequences as if they had no common prefix, for comparison.

        Raises:
            ValueError: if an item of `scored` is less than 1 or more than its sequence's number of
                tokens, or if there are not as many items as sequences.
        """
        # Equal requests are often one and the same list object, whose tokens are stored once.
        index_by_id: dict[int, int] = {}
        which = [index_by_id.setdefault(id(sequence), len(index_by_id)) for sequence in sequences]
        distinct = {id(sequence): sequence for sequence in sequences}
        length = np.array([len(sequence) for sequence in distinct.values()], dtype=np.int64)
        begin = _start_offsets(length)
        tokens = np.fromiter(chain.from_iterable(distinct.values()), np.int64, int(length.sum()))
        for index, count in zip(which, scored, strict=True):
            if not 0 < count <= length[index]:
                raise ValueError(
                    f"cannot score {count} positions of a sequence of {length[index]} tokens; the "
                    "number must be at least 1 and at most that of the tokens"
                )
        # Big-endian bytes sort like the integers they encode, and a prefix sorts first.
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
        """The number of tokens to compute if every shared prefix is computed once."""
        return int(self.lengths.sum() - self.common.sum())

    def tokens_of(self, place: int) -> Ints:
        """Returns the tokens of the sequence at an index of the sorted order, without a copy."""
        begin = self.begins[place]
        return self.tokens[begin : begin + self.lengths[place]]

    def holders(self, prefixes: bool = True) -> Ints:
        """Returns for each sequence, in sorted order, the place of one that begins with it.

        Reading the sequences that hold others computes everything: a causal model has read a prefix
        when it has read the whole. With `prefixes` False, only equal sequences hold each other.
        """
        held = self.common[1:] == self.lengths[:-1]
        if not prefixes:
            held &= self.lengths[1:] == self.lengths[:-1]
        # A sequence that the next one does not begin with holds itself and those before it.
        last = np.flatnonzero(np.append(~held, True))
        return last[np.searchsorted(last, np.arange(len(self.lengths)))]

    def padded(self, max_tokens: int, max_requests: int | None = None) -> int:
        """Returns the number of tokens to compute, padding included, without shared prefixes.

        Each distinct sequence is then one row of a padded batch. `max_tokens` and `max_requests`
        limit the batches as in `split_rows_into_batches`.
        """
        lengths = self.lengths
        repeated = (self.common[1:] == lengths[1:]) & (lengths[1:] == lengths[:-1])
        widths = np.sort(np.concatenate([lengths[:1], lengths[1:][~repeated]]))[::-1]
        cuts = split_rows_into_batches(widths, max_tokens, max_requests)
        return sum(int(widths[first]) * (last - first) for first, last in cuts)


@dataclass(frozen=True)
class Batch:
    """Some requests packed as one prefix tree. All arrays over nodes are in preorder."""

    requests: Ints
    """The requests of this batch, as indices into the planned sequences, in sorted order."""
    tokens: Ints
    """The token of every node."""
    position: Ints
    """The depth of every node: the position of its token in the sequence."""
    parent: Ints
    """The parent of every node; -1 for a root."""
    end: Ints
    """For every node, one more than the index of its last descendant."""
    scored: Ints
    """The nodes whose next-token distributions score the requests, request after request."""
    offsets: Ints
    """Request `i` of `requests` is scored by the nodes `scored[offsets[i]:offsets[i + 1]]`."""
    num_cached: int = 0
    """The number of leading nodes that the previous batch has computed and kept. They are not
    computed again."""
    kept_for_next: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    """The nodes that the next batch reuses, in ascending order."""

    def nodes_of(self, request: int) -> Ints:
        """Returns the nodes whose next-token distributions score `self.requests[request]`.

        There is one per scored token, in text order. The nodes are given as indices of all nodes of
        the batch, including the `num_cached` first ones.
        """
        return self.scored[self.offsets[request] : self.offsets[request + 1]]

    def path(self, node: int) -> Ints:
        """Returns the nodes from the root down to `node`, which is included."""
        return np.append(self.ancestors(node), node)

    def nodes_on_paths(self, last: Ints, position: Ints) -> Ints:
        """Returns the nodes at the positions `position` (N) on the paths to the nodes `last` (N).

        It does the same as `path(last)[position]` for each of them, but for all at once.
        """
        # Within a chain, in which each node is the parent of the next, nodes are consecutive.
        before = np.arange(len(self.parent) - 1)
        begins = np.append(0, np.flatnonzero(self.parent[1:] != before) + 1)
        nodes = np.empty_like(position)
        left = np.arange(len(position))
        while len(left):
            begin = begins[np.searchsorted(begins, last, side="right") - 1]
            found = position >= self.position[begin]
            nodes[left[found]] = (last - self.position[last] + position)[found]
            left, position, last = left[~found], position[~found], self.parent[begin[~found]]
        return nodes

    def ancestors(self, node: int) -> Ints:
        """Returns the ancestors of `node`, from the root down, without the node itself."""
        return _ancestors(self.end, node)


def _ancestors(end: Ints, node: int) -> Ints:
    return np.flatnonzero(end[:node] > node)


def ancestor_mask(end: Ints) -> Bools:
    """Returns a tree's attention mask: `mask[i, j]` is True if `j` is `i` or an ancestor of `i`.

    `end` is `Batch.end`. The mask has one row and one column per node.
    """
    node = np.arange(len(end))
    return (node[None, :] <= node[:, None]) & (node[:, None] < end[None, :])


def plan(
    ordered: SortedSequences, *, max_tokens: int | None = None, max_requests: int | None = None
) -> Iterator[Batch]:
    """Yields batches of neighboring sequences, each packed as a prefix tree.

    Each batch is packed only when the caller requests it, so that a device can compute meanwhile.

    Args:
        ordered: the sorted sequences.
        max_tokens: the maximum number of nodes to compute per batch, or None for no limit. A
            request that exceeds it gets a batch of its own.
        max_requests: the maximum number of requests per batch, or None for no limit.
    """
    ranges = _split_into_ranges(ordered, max_tokens, max_requests)
    for current, following in zip_longest(ranges, ranges[1:]):
        batch = _pack(ordered, current.first, current.last)
        reused = 0 if following is None else following.num_cached
        kept = batch.path(len(batch.tokens) - 1)[:reused]
        yield replace(batch, num_cached=current.num_cached, kept_for_next=kept)


class StepwisePlan:
    """Packs sorted sequences into batches one by one, each of a size that the caller chooses."""

    def __init__(self, ordered: SortedSequences) -> None:
        self.ordered = ordered
        self.taken = 0
        """How many sequences, in sorted order, are in batches."""

    def next_size(self, max_tokens: int, max_requests: int) -> int:
        """Returns how many sequences `take` would return; 0 if none is left."""
        if self.taken == len(self.ordered.order) or not max_requests:
            return 0
        return _next_range(self.ordered, self.taken, max_tokens, max_requests).last - self.taken

    def take(self, max_tokens: int, max_requests: int) -> Batch:
        """Returns the next batch, packed as a prefix tree; it has at least one sequence.

        The next batch reuses the first `num_cached` nodes that this one keeps for it
        (`kept_for_next`), at least `MIN_NODES_REUSED` or none. These are the nodes that the next
        sequence shares, of which the next batch may reuse fewer, as its size is not known yet.

        Args:
            max_tokens: the maximum number of nodes to compute. A single sequence may exceed it.
            max_requests: the maximum number of sequences.
        """
        first = self.taken
        current = _next_range(self.ordered, first, max_tokens, max_requests)
        self.taken = current.last
        batch = _pack(self.ordered, first, current.last)
        shared = int(self.ordered.common[current.last : current.last + 1].sum())  # 0 at the end
        kept = batch.path(len(batch.tokens) - 1)[: _reused(shared)]
        return replace(batch, num_cached=_reused(current.num_cached), kept_for_next=kept)


def _reused(nodes: int) -> int:
    """Returns how many nodes of the previous batch are reused if so many could be."""
    return nodes if nodes >= MIN_NODES_REUSED else 0


def _next_range(
    ordered: SortedSequences, first: int, max_tokens: int, max_requests: int
) -> _BatchRange:
    """Returns the range of sequences, beginning with `first`, that form one batch."""
    last = min(len(ordered.order), first + max_requests)
    part = replace(
        ordered,
        order=ordered.order[first:last],
        begins=ordered.begins[first:last],
        lengths=ordered.lengths[first:last],
        scored=ordered.scored[first:last],
        common=ordered.common[first:last],
    )
    found = _split_into_ranges(part, max_tokens, max_requests)[0]
    return _BatchRange(first, first + found.last, found.num_cached, found.shared, found.nodes)


def pad_batch(batch: Batch, nodes: int) -> Batch:
    """Returns the batch with a dummy sequence added, so that it has `nodes` nodes to compute.

    The dummy is not scored. Nodes that the previous batch has computed (`batch.num_cached`) do not
    count. Raises `ValueError` if the batch already has more than `nodes` nodes to compute.
    """
    total = len(batch.tokens)
    spare = nodes - (total - batch.num_cached)
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


def split_rows_into_batches(
    lengths: Sequence[int] | Ints, max_tokens: int, max_requests: int | None = None
) -> list[tuple[int, int]]:
    """Splits rows into padded batches; returns the range `(first, last)` of rows of each batch.

    `last` is exclusive.

    Args:
        lengths: the number of tokens of each row, in descending order.
        max_tokens: the maximum number of tokens per batch, padding included. A single row may
            exceed it.
        max_requests: the maximum number of rows per batch, or None for no limit.
    """
    cuts = []
    first = 0
    while first < len(lengths):
        fitting = max(1, max_tokens // int(lengths[first]))
        last = min(len(lengths), first + min(fitting, max_requests or fitting))
        cuts.append((first, last))
        first = last
    return cuts


def _start_offsets(lengths: Ints) -> Ints:
    """Returns the index at which each part begins if parts of these lengths are concatenated."""
    return np.cumsum(lengths) - lengths


def concatenated_ranges(begins: Ints, lengths: Ints) -> Ints:
    """Returns the integers of several ranges, concatenated.

    Range `i` consists of the `lengths[i]` integers from `begins[i]` on.
    """
    shift = begins - _start_offsets(lengths)
    return np.arange(int(lengths.sum()), dtype=np.int64) + np.repeat(shift, lengths)


def _common_prefixes(tokens: Ints, begins: Ints, lengths: Ints) -> Ints:
    """Returns how many leading tokens each sequence shares with the one before it; 0 for the first.

    Sequence `i` consists of the `lengths[i]` tokens of `tokens` from `begins[i]` on.
    """
    sizes = np.minimum(lengths[:-1], lengths[1:])
    common = sizes.copy()
    different = np.flatnonzero(begins[:-1] != begins[1:])
    portion = np.cumsum(sizes[different]) // TOKENS_PER_COMPARISON
    for pairs in np.split(different, np.flatnonzero(np.diff(portion)) + 1):
        size = sizes[pairs]
        one = tokens[concatenated_ranges(begins[pairs], size)]
        two = tokens[concatenated_ranges(begins[pairs + 1], size)]
        mismatches = np.flatnonzero(one != two)
        first = _start_offsets(size)
        found = np.append(mismatches, len(one))[np.searchsorted(mismatches, first)]
        common[pairs] = np.minimum(found - first, size)
    whole = np.zeros_like(lengths)
    whole[1:] = common
    return whole


@dataclass
class _BatchRange:
    """The neighboring sequences from `first` up to, not including, `last` that form one batch."""

    first: int
    last: int
    num_cached: int
    """The number of tokens whose keys and values are taken over from the previous batch."""
    shared: int
    """The number of leading tokens that all its sequences share with the previous batch."""
    nodes: int
    """The number of nodes to compute."""


def _split_into_ranges(
    ordered: SortedSequences, max_tokens: int | None, max_requests: int | None
) -> list[_BatchRange]:
    """Returns the ranges of sorted sequences that form the batches, within both limits.

    None means no limit. A single sequence may exceed `max_tokens`; it then is a batch of its own.
    The hidden states of scored positions are needed, so these positions must be computed even if
    the previous batch contains them. They limit what is taken over from the previous batch.
    """
    unscored_lengths = ordered.lengths - ordered.scored
    ranges: list[_BatchRange] = []
    sequences = zip(
        ordered.lengths.tolist(), ordered.common.tolist(), unscored_lengths.tolist(), strict=True
    )
    for i, (length, common, unscored) in enumerate(sequences):
        if ranges:
            current = ranges[-1]
            shared = min(current.shared, common)
            given = min(current.num_cached, unscored) if unscored < shared else current.num_cached
            nodes = current.nodes + length - common + current.num_cached - given
            over = max_tokens is not None and nodes > max_tokens
            full = max_requests is not None and i - current.first >= max_requests
            if not over and not full:
                ranges[-1] = _BatchRange(current.first, i + 1, given, shared, nodes)
                continue
        given = min(common, unscored)
        ranges.append(_BatchRange(i, i + 1, given, common, length - given))
    return ranges


def _pack(ordered: SortedSequences, first: int, last: int) -> Batch:
    """Returns the prefix tree of the sorted sequences from `first` up to, not including, `last`.

    A node is one token. Each sequence adds one chain of nodes for the tokens that it does not share
    with the sequence before it. The chain is attached to the node of the last shared token, which
    an earlier sequence has added. A sequence that is a prefix of an earlier one adds no nodes.
    """
    lengths, scored = ordered.lengths[first:last], ordered.scored[first:last]
    shared: Ints = np.append(0, ordered.common[first + 1 : last])
    added = lengths - shared
    base = _start_offsets(added)
    total = int(added.sum())
    tokens = ordered.tokens[concatenated_ranges(ordered.begins[first:last] + shared, added)]
    branch, end = _branches(shared, added)
    attached = np.flatnonzero((added > 0) & (shared > 0))
    parent = np.arange(-1, total - 1)
    parent[base[added > 0]] = -1
    parent[base[attached]] = (base - shared)[branch[attached]] + shared[attached] - 1
    return Batch(
        requests=ordered.order[first:last],
        tokens=tokens,
        position=concatenated_ranges(shared, added),
        parent=parent,
        end=end,
        scored=_scored_nodes(lengths, scored, shared, base, branch, end),
        offsets=np.append(0, np.cumsum(scored)),
    )


def _scored_nodes(
    lengths: Ints, scored: Ints, shared: Ints, base: Ints, branch: Ints, end: Ints
) -> Ints:
    """Returns the nodes of each sequence's last `scored` positions, sequence after sequence.

    Most of them are nodes that the sequence itself or its branch has added. For the others, the
    ancestors are looked up. The parameters are the variables of the same names in `_pack`.
    """
    which = np.repeat(np.arange(len(lengths)), scored)
    depth = concatenated_ranges(lengths - scored, scored)
    owner = np.where(depth < shared[which], branch[which], which)
    nodes: Ints = base[owner] + depth - shared[owner]
    further_up = np.flatnonzero(depth < shared[owner])  # rare
    cuts = np.flatnonzero(np.diff(which[further_up])) + 1
    for places in np.split(further_up, cuts) if len(further_up) else []:
        sequence = which[places[0]]
        above = branch[sequence]
        attached_to = int(base[above] + shared[sequence] - 1 - shared[above])
        nodes[places] = np.append(_ancestors(end, attached_to), attached_to)[depth[places]]
    return nodes


@dataclass(slots=True)
class _OpenChain:
    """A sequence's chain of nodes to which later sequences can still attach theirs."""

    sequence: int
    depth: int
    """The depth of its first node."""
    node: int
    """The index of its first node."""
    end_depth: int
    """The depth after its last open node. It decreases to what later sequences share."""


def _branches(shared: Ints, added: Ints) -> tuple[Ints, Ints]:
    """Returns each sequence's branch, and for each node the end of its subtree (`Batch.end`).

    A sequence's branch is the index of the earlier sequence to whose nodes its own nodes are
    attached; 0 if it shares nothing. The sequences are in sorted order: sequence `i` shares
    `shared[i]` leading tokens with the one before it and adds `added[i]` nodes.

    The chains that are still open form a stack. A sequence closes the chains that begin at or
    below the depth it shares, and the part of the next one below that depth. The subtrees of the
    closed nodes end at the current node. The chain that is then on top is the sequence's branch.
    """
    branch = np.zeros(len(shared), dtype=np.int64)
    open_chains: list[_OpenChain] = []
    # Ranges of nodes whose subtrees end at the same node: the first node of each, and that end.
    starts: list[int] = []
    ends: list[int] = []
    here = 0
    for i, (depth, count) in enumerate(zip(shared.tolist(), added.tolist(), strict=True)):
        while open_chains and open_chains[-1].depth >= depth:
            starts.append(open_chains.pop().node)
            ends.append(here)
        if open_chains:
            above = open_chains[-1]
            branch[i] = above.sequence
            if depth < above.end_depth:
                starts.append(above.node + depth - above.depth)
                ends.append(here)
                above.end_depth = depth
        if count:
            open_chains.append(_OpenChain(i, depth, here, depth + count))
            here += count
    starts += [above.node for above in open_chains]
    ends += [here] * len(open_chains)
    order = np.argsort(starts)
    cuts = np.append(np.array(starts, dtype=np.int64)[order], here)
    return branch, np.repeat(np.array(ends, dtype=np.int64)[order], np.diff(cuts))
