"""The layout of a packed prefix tree on a device: who sees whom, for either kind of kernel.

On a GPU each chain of nodes from a branch to a leaf is one sequence of a variable-length flash
kernel; its keys are gathered along its ancestors, so the kernel sees what it would see were the
request alone. Elsewhere nodes attend in blocks, each under a mask over the ancestors that reach
into it and itself, and whatever lies between is never touched.

Keys and values of nodes that the next batch shares are kept here, layer by layer, and handed on.
"""

from __future__ import annotations

import bisect
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ints
from lm_eval.models.huggingface import attention_kernel
from lm_eval.models.huggingface.attention import Form, flash_attention, masked_attention

TREE_KERNEL = True
KeysValues = dict[nn.Module, tuple[Tensor, Tensor]]

BLOCK = {"cpu": 96, "other": 1024}
"""Least nodes of a tree that attend together under a mask."""
GATHERED_KEYS = 1 << 18
"""Most keys gathered for one call of the flash kernel, which bounds its memory."""


@dataclass(frozen=True)
class Part:
    """Some runs of nodes for one call of the variable-length kernel."""

    first: int
    last: int
    keys: Tensor
    starts: Tensor
    key_starts: Tensor
    longest: int
    most_keys: int


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
        """Which keys each node sees under a layer's form: truths for softcaps, else addends."""
        if self.visible is None or self.distance is None:
            return None
        seen = self.visible if form.window is None else self.visible & (self.distance < form.window)
        if form.softcap is not None:
            return seen
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
            ~seen, -torch.inf
        )


class Tree:
    """One batch of the plan, ready to be attended over."""

    def __init__(self, batch: Batch, *, flash: bool, before: Tree | None = None) -> None:
        self.batch = batch
        self.kept: KeysValues = {}
        self._given: KeysValues = before.kept if before is not None and batch.given else {}
        self.layers: set[nn.Module] = set()
        """The layers that have attended over this tree."""
        self._flash = flash
        # By device, as a model may lie on several.
        self._keep: dict[torch.device, Tensor] = {}
        self._parts: dict[torch.device, list[Part]] = {}
        self._tiles = {}
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
        if self._flash and form.softcap is None:
            if TREE_KERNEL:
                return self._by_tiles(q, k, v, form)
            return self._by_flash(q, k, v, form)
        return self._by_blocks(q, k, v, form)

    def collect(self, layer: nn.Module, k: Tensor, v: Tensor) -> None:
        """For layouts that want a layer's keys and values; called once a layer."""

    # -- the flash kernel ----------------------------------------------------------------------

    def _by_flash(self, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        if q.device not in self._parts:
            self._parts[q.device] = self._make_parts(q.device)
        queries, keys, values = (x[0].transpose(0, 1) for x in (q, k, v))
        mixed = [
            flash_attention(
                queries[part.first : part.last],
                keys.index_select(0, part.keys),
                values.index_select(0, part.keys),
                part.starts,
                part.key_starts,
                part.longest,
                part.most_keys,
                form,
            )
            for part in self._parts[q.device]
        ]
        whole = mixed[0] if len(mixed) == 1 else torch.cat(mixed)
        return whole.transpose(0, 1)[None]

    def _make_parts(self, device: torch.device) -> list[Part]:
        """Chains of nodes, each with the keys of its ancestors gathered before its own."""
        given, parent = self.batch.given, self.batch.parent
        parts: list[Part] = []
        held: list[tuple[int, int, Ints]] = []
        count = 0
        starts: list[int] = []
        keys_of: list[Ints] = []  # by chain: all its last node sees
        for first, last in chains(self.batch):
            above = np.arange(max(0, parent[first] + 1))
            if parent[first] >= given:  # it hangs on an earlier chain, somewhere along it
                chain = bisect.bisect_right(starts, parent[first]) - 1
                length = (starts[chain + 1] if chain + 1 < len(starts) else first) - starts[chain]
                before = len(keys_of[chain]) - length
                above = keys_of[chain][: before + parent[first] - starts[chain] + 1]
            keys = np.concatenate([above, np.arange(first, last)])
            starts.append(first)
            keys_of.append(keys)
            if held and count + len(keys) > GATHERED_KEYS:
                parts.append(self._part(held, device))
                held, count = [], 0
            held.append((first, last, keys))
            count += len(keys)
        if held:
            parts.append(self._part(held, device))
        return parts

    def _part(self, runs: list[tuple[int, int, Ints]], device: torch.device) -> Part:
        given = self.batch.given
        lengths = [last - first for first, last, _ in runs]
        counts = [len(keys) for _, _, keys in runs]
        starts = np.cumsum([0, *lengths]).astype(np.int32)
        key_starts = np.cumsum([0, *counts]).astype(np.int32)
        keys = np.concatenate([keys for _, _, keys in runs])
        return Part(
            first=runs[0][0] - given,
            last=runs[-1][1] - given,
            keys=send(keys, device),
            starts=send(starts, device),
            key_starts=send(key_starts, device),
            longest=max(lengths),
            most_keys=max(counts),
        )

    def _by_tiles(self, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        queries, keys, values = (x[0].transpose(0, 1) for x in (q, k, v))
        group = q.shape[1] // k.shape[1]
        if (q.device, group) not in self._tiles:
            tiles, known = attention_kernel.tile(self._chains(), attention_kernel.ROWS // group)
            self._tiles[q.device, group] = send(tiles, q.device), send(known.astype(np.int32), q.device)
        scale = q.shape[-1] ** -0.5 if form.scale is None else form.scale
        mixed = attention_kernel.attend(
            queries, keys, values, *self._tiles[q.device, group], scale, form.window
        )
        return mixed.transpose(0, 1)[None]

    def _chains(self):
        given, parent = self.batch.given, self.batch.parent
        found = []
        starts: list[int] = []
        keys_of: list[Ints] = []  # by chain: all its last node sees
        for first, last in chains(self.batch):
            above = np.arange(max(0, parent[first] + 1))
            if parent[first] >= given:  # it hangs on an earlier chain, somewhere along it
                chain = bisect.bisect_right(starts, parent[first]) - 1
                length = (starts[chain + 1] if chain + 1 < len(starts) else first) - starts[chain]
                before = len(keys_of[chain]) - length
                above = keys_of[chain][: before + parent[first] - starts[chain] + 1]
            keys = np.concatenate([above, np.arange(first, last)])
            starts.append(first)
            keys_of.append(keys)
            found.append(attention_kernel.Chain(first - given, last - given, keys))
        return found

    # -- blocks under masks --------------------------------------------------------------------

    def _by_blocks(self, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        if q.device not in self._blocks:
            self._blocks[q.device] = self._make_blocks(q.device)
        blocks = self._blocks[q.device]
        key = q.device, form.window, form.softcap is None
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
            for first, last in chains(batch)
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


def chains(batch: Batch) -> list[tuple[int, int]]:
    """The stretches of not-given nodes in which each node follows its parent.

    A branch does not end a chain, its first child goes on: there is one chain for every leaf.
    """
    given, total = batch.given, len(batch.tokens)
    nodes = np.arange(given, total)
    starts = nodes[(batch.parent[given:] != nodes - 1) | (nodes == given)]
    return list(zip(starts.tolist(), [*starts[1:].tolist(), total], strict=True))
