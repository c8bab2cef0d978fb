"""The layout of a packed prefix tree on a device: who sees whom, for either kind of kernel.

On a GPU in half precision our own kernel runs chains of nodes, each from a branch to a leaf, over
the keys of their ancestors (`kernels/attention.py`). Elsewhere nodes attend in blocks, each under a
mask over the ancestors that reach into it and itself, and whatever lies between is never touched.

Keys and values of nodes that the next batch shares are kept here, layer by layer, and handed on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ints, stretches
from lm_eval.models.huggingface.attention import Form, masked_attention
from lm_eval.models.huggingface.kernels import attention as kernel

KeysValues = dict[nn.Module, tuple[Tensor, Tensor]]

BLOCK = {"cpu": 96, "other": 1024}
"""Least nodes of a tree that attend together under a mask."""


@dataclass(frozen=True)
class Block:
    """A run of nodes and the keys it sees; without a mask it stands alone and is causal."""

    first: int
    last: int
    keys: slice | Tensor
    visible: Tensor | None = None
    distance: Tensor | None = None

    def take(self, x: Tensor) -> Tensor:
        """The block's own of all keys or values."""
        return x[:, :, self.keys] if isinstance(self.keys, slice) else x.index_select(2, self.keys)

    def mask(self, form: Form, dtype: torch.dtype) -> Tensor | None:
        """Which keys each node sees under a layer's form: truths, or addends if that is usual."""
        if self.visible is None or self.distance is None:
            return None
        seen = self.visible if form.window is None else self.visible & (self.distance < form.window)
        if not form.usual:
            return seen
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
            ~seen, -torch.inf
        )


class Tree:
    """One batch of the plan, ready to be attended over."""

    def __init__(self, batch: Batch, *, kernels: bool, before: Tree | None = None) -> None:
        self.batch = batch
        self.kept: KeysValues = {}
        self._given: KeysValues = before.kept if before is not None and batch.given else {}
        self.layers: set[nn.Module] = set()
        """The layers that have attended over this tree."""
        self._kernels = kernels
        # By device, as a model may lie on several.
        self._keep: dict[torch.device, Tensor] = {}
        self._tiles: dict[tuple[torch.device, int], tuple[Tensor, Tensor]] = {}
        self._blocks: dict[torch.device, list[Block]] = {}
        self._masks: dict[tuple[torch.device, int | None, bool], list[Tensor | None]] = {}

    @property
    def tokens(self) -> Ints:
        """What is to be run: the nodes that were not given."""
        return self.batch.tokens[self.batch.given :]

    @property
    def position(self) -> Ints:
        return self.batch.position[self.batch.given :]

    def attend(self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        self.layers.add(layer)
        if layer in self._given:
            known_k, known_v = self._given[layer]
            k, v = torch.cat([known_k, k], dim=2), torch.cat([known_v, v], dim=2)
        if len(self.batch.kept):
            if k.device not in self._keep:
                self._keep[k.device] = send(self.batch.kept, k.device)
            keep = self._keep[k.device]
            self.kept[layer] = k.index_select(2, keep), v.index_select(2, keep)
        self.collect(layer, k, v)
        if self._kernels and kernel.knows(q, k, v):
            return self._by_tiles(q, k, v, form)
        return self._by_blocks(q, k, v, form)

    def collect(self, layer: nn.Module, k: Tensor, v: Tensor) -> None:
        """For layouts that want a layer's keys and values; called once a layer."""

    # -- our own kernel --------------------------------------------------------------------------

    def _by_tiles(self, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        queries = kernel.queries_in_a_tile(q.shape[1], k.shape[1], q.shape[-1])
        if (q.device, queries) not in self._tiles:
            found = chains(self.batch)
            sent = send(kernel.tile(found, queries), q.device), send(found.keys, q.device)
            self._tiles[q.device, queries] = sent
        own, keys, values = (x[0].transpose(0, 1) for x in (q, k, v))
        tiles, listed = self._tiles[q.device, queries]
        mixed = kernel.attend(own, keys, values, tiles, listed, form)
        return mixed.transpose(0, 1)[None]

    # -- blocks under masks --------------------------------------------------------------------

    def _by_blocks(self, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        if q.device not in self._blocks:
            self._blocks[q.device] = self._make_blocks(q.device)
        blocks = self._blocks[q.device]
        key = q.device, form.window, form.usual
        if key not in self._masks:
            self._masks[key] = [block.mask(form, q.dtype) for block in blocks]
        mixed = []
        for block, visible in zip(blocks, self._masks[key], strict=True):
            # Alone and inside the window, a run needs no mask; a mask costs twice the time.
            causal = visible is None
            if causal and form.window is not None and block.last - block.first > form.window:
                visible, causal = _windowed(block.last - block.first, form.window, q.device), False
            own = q[:, :, block.first : block.last]
            mixed.append(
                masked_attention(own, block.take(k), block.take(v), visible, form, causal=causal)
            )
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=2)

    def _make_blocks(self, device: torch.device) -> list[Block]:
        """Long runs that begin a text stand alone. The rest is cut where the tree is shallow, so
        that few ancestors reach over the cut.
        """
        batch, given = self.batch, self.batch.given
        total = len(batch.tokens)
        size = BLOCK.get(device.type, BLOCK["other"])
        alone = {
            first: last
            for first, last in runs(batch)
            if batch.parent[first] < 0 and last - first >= size
        }
        blocks: list[Block] = []
        first = given
        while first < total:
            if first in alone:
                last = alone[first]
                blocks.append(Block(first - given, last - given, slice(first, last)))
                first = last
                continue
            window = batch.position[first + size : first + 2 * size]
            last = first + size + int(window.argmin()) if len(window) else total
            last = min([last, *(start for start in alone if first < start < last)])
            keys = np.concatenate([batch.ancestors(first), np.arange(first, last)])
            node = np.arange(first, last)[:, None]
            visible = (keys <= node) & (node < batch.end[keys])
            distance = batch.position[node] - batch.position[keys]
            straight = keys[-1] - keys[0] + 1 == len(keys)
            which = slice(int(keys[0]), last) if straight else send(keys, device)
            sent = send(visible, device), send(distance, device)
            blocks.append(Block(first - given, last - given, which, *sent))
            first = last
        return blocks


def _windowed(count: int, window: int, device: torch.device) -> Tensor:
    """The mask of a text by itself, each token seeing so many before it."""
    every = torch.ones(count, count, dtype=torch.bool, device=device)
    return every.tril().triu(1 - window)


def send(array: Any, device: torch.device) -> Tensor:
    """To a device without waiting for what it is doing, which takes page-locked memory."""
    sent = torch.from_numpy(array)
    return sent.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else sent


def runs(batch: Batch) -> Ints:
    """The stretches (C, 2) of not-given nodes in which each node follows its parent.

    A branch does not end a run, its first child goes on: there is one run for every leaf.
    """
    given, total = batch.given, len(batch.tokens)
    nodes = np.arange(given, total)
    starts = nodes[(batch.parent[given:] != nodes - 1) | (nodes == given)]
    return np.stack([starts, np.append(starts[1:], total)], axis=1)


def chains(batch: Batch) -> kernel.Chains:
    """The runs of a tree, each with the keys of the nodes that it hangs on.

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
    return kernel.Chains(
        first - given, length, first, above, stem, root, listed, keys.astype(np.int32)
    )
