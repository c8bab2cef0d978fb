"""Attention over a packed prefix tree in one Triton kernel.

General attention kernels need the keys of each sequence in contiguous memory, and they process each
sequence and head in tiles of 128 rows, of which a short answer fills a fifth. This kernel reads the
keys where they are, and puts all query heads that share a key head into one tile.

Shapes: N queries, M keys, H query heads, K key heads, E width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Batch, Ints, concatenated_ranges
from lm_eval.models.huggingface.attention import AttentionSettings
from lm_eval.models.huggingface.kernels.compiler import tl, triton
from lm_eval.models.huggingface.packing import chain_ranges, copy_to_device

TILE_ROWS = 128
"""Rows of a tile: its queries times the number of query heads that share a key head."""
KEYS_PER_STEP = 64
"""Keys that the kernel loads at once."""
MAX_HEAD_WIDTH = 256
"""The kernel does not support wider heads."""
MAX_FULL_TILE_WIDTH = 128
"""Wider heads get tiles of half the size, because a GPU's shared memory is limited."""
TILE_COLUMNS = 8
"""Number of integers that describe a tile (see `make_tiles`)."""
LOG2_E = 1.4426950408889634
"""Converts natural logarithms to base 2, for the hardware's exp2."""


class Chains(NamedTuple):
    """The chains of queries of a tree, with the keys that each chain attends to.

    A chain is a range of nodes in which each node is the parent of the next. A query attends to the
    ancestors of its chain's first query, and to its chain up to and including itself. The first
    ancestors, the stem, have contiguous keys; often they are many, and there are no others. The
    keys of the other ancestors are listed in `keys`.
    """

    first: Ints
    """The index of each chain's first query."""
    length: Ints
    """The number of queries of each chain."""
    own: Ints
    """The index of the key of each chain's first query. The keys of its other queries follow."""
    above: Ints
    """The number of ancestors of each chain's first query."""
    stem: Ints
    """The number of these ancestors that belong to the stem."""
    root: Ints
    """The index of the first key of each chain's stem."""
    listed: Ints
    """The index in `keys` at which the ancestors after the stem begin."""
    keys: Ints
    """The indices of the keys of ancestors that do not belong to a stem."""


class TreeAttention:
    """Computes attention over one packed prefix tree with the kernel below."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # The tensors are stored per device, because a model may be spread over several.
        self._tiles: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}

    def supports(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Returns whether the kernel supports heads of these shapes, (…, H, N, E)."""
        fits: bool = q.shape[-1] == k.shape[-1] == v.shape[-1] <= MAX_HEAD_WIDTH
        return fits and q.shape[-3] // k.shape[-3] <= _tile_rows(q.shape[-1])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings) -> Tensor:
        """Returns the attention output (1, H, N, E).

        The queries `q` are (1, H, N, E), the keys `k` and values `v` (1, K, M, E).
        """
        queries = queries_per_tile(q.shape[1], k.shape[1], q.shape[-1])
        if (q.device, queries) not in self._tiles:
            chains = find_chains(self._batch)
            self._tiles[q.device, queries] = (
                copy_to_device(make_tiles(chains, queries), q.device),
                copy_to_device(chains.keys, q.device),
            )
        own, keys, values = (x[0].transpose(0, 1) for x in (q, k, v))
        tiles, listed = self._tiles[q.device, queries]
        mixed = attend(own, keys, values, tiles, listed, settings)
        return mixed.transpose(0, 1)[None]


def find_chains(batch: Batch) -> Chains:
    """Returns the chains of a tree, with the keys of their ancestors.

    The stem of a chain is the part of its ancestors that was computed with the previous batch or,
    if there is none, that belongs to the chain at the root of its tree. Its other ancestors are the
    first keys in the list of the chain that it is attached to. So `Chains.keys` has one list for
    every chain that other chains are attached to.
    """
    given = batch.num_cached
    first, last = chain_ranges(batch).T
    length = last - first
    attached_to = batch.parent[first]
    # The chain that contains the node; -1 if that was computed with the previous batch, or is none.
    upper = np.searchsorted(first, attached_to, side="right") - 1
    above = attached_to + 1
    stem = above.copy()
    root = np.zeros_like(above)
    levels = [np.flatnonzero(upper < 0)]
    waiting = np.flatnonzero(upper >= 0)
    known = upper < 0
    while len(waiting):
        ready = known[upper[waiting]]
        level, waiting = waiting[ready], waiting[~ready]
        over, down = upper[level], attached_to[level] - first[upper[level]] + 1
        over_is_root = above[over] == 0
        above[level] = above[over] + down
        stem[level] = np.where(over_is_root, down, stem[over])
        root[level] = np.where(over_is_root, first[over], root[over])
        known[level] = True
        levels.append(level)
    has_children = np.zeros(len(first), dtype=bool)
    has_children[upper[upper >= 0]] = True
    size = np.where(has_children & (above > 0), above - stem + length, 0)
    start = np.cumsum(size) - size
    listed = np.where(upper < 0, 0, start[upper])
    keys = np.zeros(int(size.sum()), dtype=np.int64)
    for level in levels:
        chain = level[size[level] > 0]
        rest = above[chain] - stem[chain]
        inherited = keys[concatenated_ranges(listed[chain], rest)]
        keys[concatenated_ranges(start[chain], rest)] = inherited
        own = concatenated_ranges(first[chain], length[chain])
        keys[concatenated_ranges(start[chain] + rest, length[chain])] = own
    return Chains(first - given, length, first, above, stem, root, listed, keys.astype(np.int32))


def make_tiles(chains: Chains, queries: int) -> Ints:
    """Splits chains into tiles of at most `queries` queries; returns one row per tile.

    Its `TILE_COLUMNS` numbers are the index of the first query, the number of queries, the number
    of keys that the first query attends to, and the chain's `above`, `stem`, `root`, `listed` and
    `own`.
    """
    count = -(-chains.length // queries)
    chain = np.repeat(np.arange(len(count)), count)
    begin = concatenated_ranges(np.zeros_like(count), count) * queries
    tiles = [
        chains.first[chain] + begin,
        np.minimum(queries, chains.length[chain] - begin),
        chains.above[chain] + begin + 1,
        *(part[chain] for part in (chains.above, chains.stem, chains.root)),
        *(part[chain] for part in (chains.listed, chains.own)),
    ]
    return np.stack(tiles, axis=1).astype(np.int32)


def queries_per_tile(heads: int, key_heads: int, width: int) -> int:
    """Returns how many queries fit into a tile, for this many heads of this width."""
    return max(1, _tile_rows(width) // (heads // key_heads))


def _tile_rows(width: int) -> int:
    return TILE_ROWS if width <= MAX_FULL_TILE_WIDTH else TILE_ROWS // 2


def attend(
    q: Tensor, k: Tensor, v: Tensor, tiles: Tensor, keys: Tensor, settings: AttentionSettings
) -> Tensor:
    """Runs the kernel; returns the attention output (N, H, E).

    Args:
        q: the queries (N, H, E).
        k: the keys (M, K, E).
        v: the values (M, K, E).
        tiles: the tiles that `make_tiles` returns.
        keys: the list of key indices `Chains.keys`.
        settings: the layer's attention settings.
    """
    heads, width = k.shape[1:]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    scale, cap = settings.scale_of(q), settings.softcap
    keys_per_step = KEYS_PER_STEP if width <= MAX_FULL_TILE_WIDTH else KEYS_PER_STEP // 2
    with torch.cuda.device_of(q):
        _attend[(len(tiles), heads)](
            q, k, v, out, tiles, keys, settings.sinks,
            scale * LOG2_E if cap is None else scale / cap, (cap or 0.0) * LOG2_E,
            settings.window or 0,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            out.stride(0), out.stride(1),
            group=q.shape[1] // heads, width=width, block=max(16, triton.next_power_of_2(width)),
            rows=_tile_rows(width), keys_per_step=keys_per_step, columns=TILE_COLUMNS,
            has_window=settings.window is not None, has_softcap=cap is not None,
            has_sinks=settings.sinks is not None, log2_e=LOG2_E, num_warps=8, num_stages=2,
        )  # fmt: skip
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _attend(  # type: ignore[no-untyped-def]
        q, k, v, out, tiles, keys, sinks, scale, cap, window,
        q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head,
        group: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
        rows: tl.constexpr, keys_per_step: tl.constexpr, columns: tl.constexpr,
        has_window: tl.constexpr, has_softcap: tl.constexpr, has_sinks: tl.constexpr,
        log2_e: tl.constexpr,
    ):  # fmt: skip
        """Computes the attention of one tile for one key head and the query heads that share it.

        The keys are processed in blocks of `keys_per_step`; the softmax is updated after each
        (online softmax).
        """
        tile, head = tl.program_id(0), tl.program_id(1)
        tiles += tile * columns
        first = tl.load(tiles).to(tl.int64)
        count = tl.load(tiles + 1)
        seen = tl.load(tiles + 2)
        above = tl.load(tiles + 3)
        stem = tl.load(tiles + 4)
        root = tl.load(tiles + 5)
        listed = tl.load(tiles + 6).to(tl.int64) - stem
        start = tl.load(tiles + 7) - above
        row = tl.arange(0, rows)
        query = row // group
        column = tl.arange(0, block)
        inside = (query < count)[:, None] & (column < width)[None, :]
        own = ((first + query) * q_row + (head * group + row % group) * q_head)[:, None]
        query_block = tl.load(q + own + column[None, :], mask=inside, other=0.0)
        limit = seen + query
        last = seen + count - 1
        highest = tl.full((rows,), float("-inf"), tl.float32)
        total = tl.zeros((rows,), tl.float32)
        if has_sinks:
            highest = tl.load(sinks + head * group + row % group).to(tl.float32) * log2_e
            total += 1.0
        mixed = tl.zeros((rows, block), tl.float32)
        begin = 0
        if has_window:
            begin = tl.maximum(0, seen - window) // keys_per_step * keys_per_step
        for at in range(begin, last, keys_per_step):
            place = at + tl.arange(0, keys_per_step)
            is_listed = (place >= stem) & (place < above)
            key = tl.load(keys + listed + place, mask=is_listed, other=0)
            contiguous = tl.where(place < stem, root + place, start + place)
            key = tl.where(is_listed, key, contiguous).to(tl.int64)
            valid = (place < last)[:, None] & (column < width)[None, :]
            key_block = tl.load(
                k + (key * k_row + head * k_head)[:, None] + column[None, :], mask=valid, other=0.0
            )
            scores = tl.dot(query_block, tl.trans(key_block), input_precision="ieee") * scale
            if has_softcap:
                scores = cap - 2.0 * cap / (1.0 + tl.exp(2.0 * scores))  # tanh
            visible = place[None, :] < limit[:, None]
            if has_window:
                visible = visible & (place[None, :] >= limit[:, None] - window)
            scores = tl.where(visible, scores, float("-inf"))
            new_highest = tl.maximum(highest, tl.max(scores, 1))
            base = tl.where(new_highest == float("-inf"), 0.0, new_highest)
            weights = tl.exp2(scores - base[:, None])
            correction = tl.exp2(highest - base)
            total = total * correction + tl.sum(weights, 1)
            value_block = tl.load(
                v + (key * v_row + head * v_head)[:, None] + column[None, :], mask=valid, other=0.0
            )
            mixed = mixed * correction[:, None]
            mixed = tl.dot(
                weights.to(value_block.dtype), value_block, mixed, input_precision="ieee"
            )
            highest = new_highest
        mixed = mixed / total[:, None]
        target = ((first + query) * out_row + (head * group + row % group) * out_head)[:, None]
        tl.store(out + target + column[None, :], mixed.to(query_block.dtype), mask=inside)
