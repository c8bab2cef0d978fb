"""The layout of a packed prefix tree on a device: which nodes attend to which.

On a GPU in half precision, our kernel runs chains of nodes, each from a branch to a leaf, over the
keys of their ancestors (`kernels/attention.py`). Elsewhere nodes attend in blocks, each under a
mask over itself and the ancestors that reach into it; nodes in between are never read.

Keys and values of nodes that the next batch shares are kept here, layer by layer, and passed to it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ints
from lm_eval.models.huggingface.accelerated import tree_attention
from lm_eval.models.huggingface.attention import Form, masked_attention
from lm_eval.models.huggingface.packing import runs, send

KeysValues = dict[nn.Module, tuple[Tensor, Tensor]]

BLOCK = {"cpu": 96, "other": 1024}
"""Minimum number of nodes that attend together under a mask."""


@dataclass(frozen=True)
class Block:
    """A range of nodes and the keys they attend to; without a mask it is one causal text."""

    first: int
    last: int
    keys: slice | Tensor
    visible: Tensor | None = None
    distance: Tensor | None = None

    def take(self, x: Tensor) -> Tensor:
        """Returns the block's own keys or values out of all."""
        return x[:, :, self.keys] if isinstance(self.keys, slice) else x.index_select(2, self.keys)

    def mask(self, form: Form, dtype: torch.dtype) -> Tensor | None:
        """Returns the mask of keys that each node attends to: additive if `form` is usual."""
        if self.visible is None or self.distance is None:
            return None
        seen = self.visible if form.window is None else self.visible & (self.distance < form.window)
        if not form.usual:
            return seen
        return torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill_(
            ~seen, -torch.inf
        )


class Tree:
    """The attention layout of one batch of the plan."""

    def __init__(self, batch: Batch, *, kernels: bool, before: Tree | None = None) -> None:
        self.batch = batch
        self.kept: KeysValues = {}
        self._given: KeysValues = before.kept if before is not None and batch.given else {}
        self.layers: set[nn.Module] = set()
        """The layers that have attended over this tree."""
        self._kernel = tree_attention(batch) if kernels else None
        # By device, because a model may be spread over several.
        self._keep: dict[torch.device, Tensor] = {}
        self._blocks: dict[torch.device, list[Block]] = {}
        self._masks: dict[tuple[torch.device, int | None, bool], list[Tensor | None]] = {}

    @property
    def tokens(self) -> Ints:
        """The tokens of the nodes to be run: those that were not given."""
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
        if self._kernel is not None and self._kernel.supports(q, k, v):
            return self._kernel.attend(q, k, v, form)
        return self._by_blocks(q, k, v, form)

    def collect(self, layer: nn.Module, k: Tensor, v: Tensor) -> None:
        """Hook for subclasses that need keys and values; called once per layer."""

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
        """Splits the nodes into blocks.

        Long runs that begin a text get their own. The rest is cut where the tree is shallow, so
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
    """Returns the causal mask of a single text with a sliding window."""
    every = torch.ones(count, count, dtype=torch.bool, device=device)
    return every.tril().triu(1 - window)
