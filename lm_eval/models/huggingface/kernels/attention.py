"""Attention over a packed prefix tree in one kernel.

General kernels need the keys of every sequence to be contiguous, and give each sequence and head a
tile of 128 rows, of which a short answer fills a fifth. Here keys are read in place, and the query
heads that share keys form one tile.

Shapes: N queries, M keys, H query heads, K key heads, E width of a head.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Batch, Ints, stretches
from lm_eval.models.huggingface.attention import Form
from lm_eval.models.huggingface.kernels.compiler import tl, triton
from lm_eval.models.huggingface.packing import runs, send

ROWS = 128
"""Rows of a tile: queries times the heads that share a key head."""
KEYS = 64
"""Keys loaded at once."""
WIDEST = 256
WIDE = 128
"""Heads wider than this have tiles of half the size, because shared memory is limited."""
COLUMNS = 8
BASE_2 = 1.4426950408889634
"""Converts natural logarithms to base 2, for the hardware's exp2."""


class Chains(NamedTuple):
    """Runs of queries: each attends to the ancestors of its chain, and to its chain up to itself.

    The ancestors begin with contiguous keys, the stem, which is often long and all there is. The
    rest is listed.
    """

    first: Ints
    """Each chain's first query."""
    length: Ints
    own: Ints
    """The key of each chain's first query; those of the others follow."""
    above: Ints
    """How many ancestors its first query attends to."""
    stem: Ints
    """How many of those are the stem."""
    root: Ints
    """The first key of the stem."""
    listed: Ints
    """Where the other keys begin in the list."""
    keys: Ints
    """The list."""


class TreeAttention:
    """Attention over one packed prefix tree by the kernel below."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        # By device, because a model may be spread over several.
        self._tiles: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}

    def supports(self, q: Tensor, k: Tensor, v: Tensor) -> bool:
        """Whether heads of these shapes (…, H, N, E) can be attended over."""
        fits: bool = q.shape[-1] == k.shape[-1] == v.shape[-1] <= WIDEST
        return fits and q.shape[-3] // k.shape[-3] <= _rows(q.shape[-1])

    def attend(self, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        """Returns mixed values (1, H, N, E) of queries (1, H, N, E) over keys (1, K, M, E)."""
        queries = queries_in_a_tile(q.shape[1], k.shape[1], q.shape[-1])
        if (q.device, queries) not in self._tiles:
            found = chains(self._batch)
            sent = send(tile(found, queries), q.device), send(found.keys, q.device)
            self._tiles[q.device, queries] = sent
        own, keys, values = (x[0].transpose(0, 1) for x in (q, k, v))
        tiles, listed = self._tiles[q.device, queries]
        mixed = attend(own, keys, values, tiles, listed, form)
        return mixed.transpose(0, 1)[None]


def chains(batch: Batch) -> Chains:
    """Returns the runs of a tree, each with the keys of its ancestors.

    Those begin with given nodes or with a run that hangs on nothing, which is the stem. Below it,
    they are the first keys of an earlier run, so the list has those of every run that others hang
    on.
    """
    given = batch.given
    first, last = runs(batch).T
    length = last - first
    hook = batch.parent[first]
    upper = np.searchsorted(first, hook, side="right") - 1  # -1: it hangs on a given node, or none
    above = hook + 1
    stem = above.copy()
    root = np.zeros_like(above)
    levels = [np.flatnonzero(upper < 0)]
    waiting = np.flatnonzero(upper >= 0)
    known = upper < 0
    while len(waiting):
        ready = known[upper[waiting]]
        level, waiting = waiting[ready], waiting[~ready]
        over, down = upper[level], hook[level] - first[upper[level]] + 1
        lone = above[over] == 0
        above[level] = above[over] + down
        stem[level] = np.where(lone, down, stem[over])
        root[level] = np.where(lone, first[over], root[over])
        known[level] = True
        levels.append(level)
    bears = np.zeros(len(first), dtype=bool)
    bears[upper[upper >= 0]] = True
    size = np.where(bears & (above > 0), above - stem + length, 0)
    place = np.cumsum(size) - size
    listed = np.where(upper < 0, 0, place[upper])
    keys = np.zeros(int(size.sum()), dtype=np.int64)
    for level in levels:
        run = level[size[level] > 0]
        rest = above[run] - stem[run]
        keys[stretches(place[run], rest)] = keys[stretches(listed[run], rest)]
        keys[stretches(place[run] + rest, length[run])] = stretches(first[run], length[run])
    return Chains(first - given, length, first, above, stem, root, listed, keys.astype(np.int32))


def tile(chains: Chains, queries: int) -> Ints:
    """Cuts chains into tiles of at most `queries` queries, each described by `COLUMNS` numbers.

    These are the first query and how many there are, how many keys the first one sees, and of its
    chain `above`, `stem`, `root`, `listed` and `own`.
    """
    count = -(-chains.length // queries)
    chain = np.repeat(np.arange(len(count)), count)
    begin = stretches(np.zeros_like(count), count) * queries
    tiles = [
        chains.first[chain] + begin,
        np.minimum(queries, chains.length[chain] - begin),
        chains.above[chain] + begin + 1,
        *(part[chain] for part in (chains.above, chains.stem, chains.root)),
        *(part[chain] for part in (chains.listed, chains.own)),
    ]
    return np.stack(tiles, axis=1).astype(np.int32)


def queries_in_a_tile(heads: int, key_heads: int, width: int) -> int:
    return max(1, _rows(width) // (heads // key_heads))


def _rows(width: int) -> int:
    return ROWS if width <= WIDE else ROWS // 2


def attend(q: Tensor, k: Tensor, v: Tensor, tiles: Tensor, keys: Tensor, form: Form) -> Tensor:
    """Returns mixed values (N, H, E) of queries (N, H, E) over keys and values (M, K, E)."""
    heads, width = k.shape[1:]
    out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
    scale, cap = form.scale_of(q), form.softcap
    with torch.cuda.device(q.device):
        _attend[(len(tiles), heads)](
            q, k, v, out, tiles, keys, form.sinks,
            scale * BASE_2 if cap is None else scale / cap, (cap or 0.0) * BASE_2, form.window or 0,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            out.stride(0), out.stride(1),
            group=q.shape[1] // heads, width=width, block=max(16, triton.next_power_of_2(width)),
            rows=_rows(width), at_once=KEYS if width <= WIDE else KEYS // 2, columns=COLUMNS,
            windowed=form.window is not None, capped=cap is not None,
            sinking=form.sinks is not None, base_2=BASE_2, num_warps=8, num_stages=2,
        )  # fmt: skip
    return out


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _attend(  # type: ignore[no-untyped-def]
        q, k, v, out, tiles, keys, sinks, scale, cap, window,
        q_row, q_head, k_row, k_head, v_row, v_head, out_row, out_head,
        group: tl.constexpr, width: tl.constexpr, block: tl.constexpr,
        rows: tl.constexpr, at_once: tl.constexpr, columns: tl.constexpr, windowed: tl.constexpr,
        capped: tl.constexpr, sinking: tl.constexpr, base_2: tl.constexpr,
    ):  # fmt: skip
        """One program per tile and key head; the softmax is updated block by block of keys."""
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
        asked = tl.load(q + own + column[None, :], mask=inside, other=0.0)
        limit = seen + query
        last = seen + count - 1
        top = tl.full((rows,), float("-inf"), tl.float32)
        total = tl.zeros((rows,), tl.float32)
        if sinking:
            top = tl.load(sinks + head * group + row % group).to(tl.float32) * base_2
            total += 1.0
        mixed = tl.zeros((rows, block), tl.float32)
        begin = 0
        if windowed:
            begin = tl.maximum(0, seen - window) // at_once * at_once
        for at in range(begin, last, at_once):
            place = at + tl.arange(0, at_once)
            apart = (place >= stem) & (place < above)
            key = tl.load(keys + listed + place, mask=apart, other=0)
            near = tl.where(place < stem, root + place, start + place)
            key = tl.where(apart, key, near).to(tl.int64)
            there = (place < last)[:, None] & (column < width)[None, :]
            shown = tl.load(
                k + (key * k_row + head * k_head)[:, None] + column[None, :], mask=there, other=0.0
            )
            likeness = tl.dot(asked, tl.trans(shown), input_precision="ieee") * scale
            if capped:
                likeness = cap - 2.0 * cap / (1.0 + tl.exp(2.0 * likeness))  # tanh
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
            mixed = mixed * before[:, None]
            mixed = tl.dot(share.to(value.dtype), value, mixed, input_precision="ieee")
            top = highest
        mixed = mixed / total[:, None]
        target = ((first + query) * out_row + (head * group + row % group) * out_head)[:, None]
        tl.store(out + target + column[None, :], mixed.to(asked.dtype), mask=inside)
