"""Attention over a packed prefix tree in one kernel, for a GPU.

A chain of nodes sees its ancestors and itself. General kernels want each chain's keys laid side by
side, and give every chain and head a tile of 128 rows, of which a short answer fills a fifth. Here
keys are read where they are, by their numbers, and the query heads that share keys stand in one
tile.

Shapes: N queries, M keys, H query heads, K key heads, E width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Ints

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ROWS = 128
"""Rows of a tile: queries times the heads that share a key."""
KEYS = 64
"""Keys looked at at once."""


class Chain(NamedTuple):
    """Queries `first` up to `last`, of which the last sees all of `keys`, each other one fewer."""

    first: int
    last: int
    keys: Ints


def tile(chains: list[Chain], queries: int) -> tuple[Ints, Ints]:
    """Cut chains into tiles of so many queries.

    Gives tiles (T, 4), the first query, the number of queries, where the keys begin and how many of
    them the first query sees; and the keys of all chains, end to end.
    """
    length = np.array([chain.last - chain.first for chain in chains])
    known = np.array([len(chain.keys) for chain in chains])
    count = -(-length // queries)
    chain = np.repeat(np.arange(len(chains)), count)
    place = np.arange(len(chain)) - np.repeat(np.cumsum(count) - count, count)
    first = np.array([chain.first for chain in chains])
    begin = np.cumsum(known) - known
    tiles = np.empty((len(chain), 4), dtype=np.int32)
    tiles[:, 0] = first[chain] + place * queries
    tiles[:, 1] = np.minimum(queries, length[chain] - place * queries)
    tiles[:, 2] = begin[chain]
    tiles[:, 3] = (known - length)[chain] + place * queries + 1
    return tiles, np.concatenate([chain.keys for chain in chains])


def attend(
    q: Tensor, k: Tensor, v: Tensor, tiles: Tensor, keys: Tensor, scale: float, window: int | None
) -> Tensor:
    """Mixed values (N, H, E) of queries (N, H, E) over keys and values (M, K, E)."""
    heads, width = k.shape[1:]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    with torch.cuda.device(q.device):
        _attend[(len(tiles), heads)](
            q, k, v, out, tiles, keys, scale * 1.4426950408889634, window or 0,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            out.stride(0), out.stride(1),
            q.shape[1] // heads, width, max(16, triton.next_power_of_2(width)),
            ROWS, KEYS, window is not None, num_warps=WARPS, num_stages=STAGES,
        )  # fmt: skip
    return out

WARPS, STAGES = 8, 2

if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _attend(  # type: ignore[no-untyped-def]
        q, k, v, out, tiles, keys, scale, window,
        q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head,
        group: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
        rows: tl.constexpr, at_once: tl.constexpr, windowed: tl.constexpr,
    ):  # fmt: skip
        """One program a tile and key head; the softmax is kept up block by block of keys."""
        tile, head = tl.program_id(0), tl.program_id(1)
        first = tl.load(tiles + 4 * tile).to(tl.int64)
        count = tl.load(tiles + 4 * tile + 1)
        offset = tl.load(tiles + 4 * tile + 2).to(tl.int64)
        seen = tl.load(tiles + 4 * tile + 3)
        row = tl.arange(0, rows)
        query = row // group
        column = tl.arange(0, block)
        inside = (query < count)[:, None] & (column < width)[None, :]
        own = ((first + query) * q_row + (head * group + row % group) * q_head)[:, None]
        asked = tl.load(q + own + column[None, :], mask=inside, other=0.0)
        limit = seen + query
        last = seen + count - 1
        top = tl.full((rows,), float("-inf"), tl.float32)
        total = tl.zeros((rows,), tl.float32)
        mixed = tl.zeros((rows, block), tl.float32)
        begin = 0
        if windowed:
            begin = tl.maximum(0, seen - window) // at_once * at_once
        for start in range(begin, last, at_once):
            place = start + tl.arange(0, at_once)
            known = place < last
            key = tl.load(keys + offset + place, mask=known, other=0).to(tl.int64)
            there = known[:, None] & (column < width)[None, :]
            shown = tl.load(
                k + (key * k_row + head * k_head)[:, None] + column[None, :], mask=there, other=0.0
            )
            likeness = tl.dot(asked, tl.trans(shown)) * scale
            visible = place[None, :] < limit[:, None]
            if windowed:
                visible = visible & (place[None, :] >= limit[:, None] - window)
            likeness = tl.where(visible, likeness, float("-inf"))
            highest = tl.maximum(top, tl.max(likeness, 1))
            base = tl.where(highest == float("-inf"), 0.0, highest)
            share = tl.exp2(likeness - base[:, None])
            before = tl.exp2(top - base)
            total = total * before + tl.sum(share, 1)
            value = tl.load(
                v + (key * v_row + head * v_head)[:, None] + column[None, :], mask=there, other=0.0
            )
            mixed = tl.dot(share.to(value.dtype), value, mixed * before[:, None])
            top = highest
        mixed = mixed / total[:, None]
        target = ((first + query) * out_row + (head * group + row % group) * out_head)[:, None]
        tl.store(out + target + column[None, :], mixed.to(asked.dtype), mask=inside)
