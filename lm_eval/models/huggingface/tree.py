"""The attention layout of a packed prefix tree: which nodes attend to which.

On a GPU in half precision, our kernel (`kernels/attention.py`) computes the attention of each chain
of nodes over itself and its ancestors. Elsewhere, the nodes are divided into blocks. Each block
attends, under a mask, to itself and to those earlier nodes that are ancestors of its nodes.

The keys and values of nodes that the next batch shares are kept, layer by layer, and passed on to
it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ints
from lm_eval.models.huggingface.accelerated import tree_attention
from lm_eval.models.huggingface.attention import (
    AttentionSettings,
    additive_mask,
    masked_attention,
)
from lm_eval.models.huggingface.packing import chain_ranges, copy_to_device

KeysValues = dict[nn.Module, tuple[Tensor, Tensor]]
"""The keys and values of each layer."""

MIN_BLOCK_NODES = {"cpu": 96, "other": 1024}
"""Minimum number of nodes of a block, by device type."""


@dataclass(frozen=True)
class Block:
    """A range of nodes, and the keys they attend to.

    Without a mask (`visible` is None), it is one sequence with causal attention.
    """

    first: int
    last: int
    keys: slice | Tensor
    """The nodes whose keys and values the block uses, as a slice or as indices."""
    visible: Tensor | None = None
    """Mask (nodes, keys): whether the key is the node itself or an ancestor."""
    distance: Tensor | None = None
    """How many positions the key is before the node (nodes, keys); for sliding windows."""

    def select(self, x: Tensor) -> Tensor:
        """Returns the keys or values that the block uses, out of those of all nodes (…, M, E)."""
        return x[:, :, self.keys] if isinstance(self.keys, slice) else x.index_select(2, self.keys)

    def mask(self, settings: AttentionSettings, dtype: torch.dtype) -> Tensor | None:
        """Returns the attention mask of the block; None for causal attention without a mask.

        It is additive (0 or -inf, of type `dtype`) if torch computes the attention, and boolean
        otherwise.
        """
        if self.visible is None or self.distance is None:
            return None
        seen = (
            self.visible
            if settings.window is None
            else self.visible & (self.distance < settings.window)
        )
        return additive_mask(seen, dtype) if settings.supported_by_sdpa else seen


class TreeLayout:
    """The attention layout (see `attention.Layout`) of one batch."""

    def __init__(self, batch: Batch, *, kernels: bool, previous: TreeLayout | None = None) -> None:
        """Prepares the layout.

        Args:
            batch: the packed prefix tree.
            kernels: whether to use our attention kernel.
            previous: the layout of the previous batch, which has kept keys and values for this one.
        """
        self.batch = batch
        self.kept: KeysValues = {}
        """The keys and values that the next batch reuses."""
        self._inherited: KeysValues = (
            previous.kept if previous is not None and batch.num_cached else {}
        )
        self.layers: set[nn.Module] = set()
        """The layers that have called `attend`."""
        self._kernel = tree_attention(batch) if kernels else None
        # These are stored per device, because a model may be spread over several.
        self._kept_index: dict[torch.device, Tensor] = {}
        self._blocks: dict[torch.device, list[Block]] = {}
        self._masks: dict[tuple[torch.device, int | None, bool], list[Tensor | None]] = {}

    @property
    def tokens(self) -> Ints:
        """The tokens of the nodes to compute, without those computed with the previous batch."""
        return self.batch.tokens[self.batch.num_cached :]

    @property
    def position(self) -> Ints:
        """The positions of the nodes to compute."""
        return self.batch.position[self.batch.num_cached :]

    def attend(
        self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Returns the attention output (1, H, N, E) of one layer; see `attention.Layout`.

        Stores the keys and values that the next batch reuses in `kept`.
        """
        self.layers.add(layer)
        if layer in self._inherited:
            # The previous batch may have kept more than this one shares.
            given = self.batch.num_cached
            known_k, known_v = (x[:, :, :given] for x in self._inherited[layer])
            k, v = torch.cat([known_k, k], dim=2), torch.cat([known_v, v], dim=2)
        if len(self.batch.kept_for_next):
            self.kept[layer] = self._keep(k), self._keep(v)
        self.collect(layer, k, v)
        if self._kernel is not None and self._kernel.supports(q, k, v):
            return self._kernel.attend(q, k, v, settings)
        return self._attend_in_blocks(q, k, v, settings)

    def _keep(self, x: Tensor) -> Tensor:
        """Returns a copy of those keys or values that the next batch reuses."""
        kept = self.batch.kept_for_next
        if kept[-1] == len(kept) - 1:  # the first nodes, such as those of a common prefix
            return x[:, :, : len(kept)].clone()
        if x.device not in self._kept_index:
            self._kept_index[x.device] = copy_to_device(kept, x.device)
        return x.index_select(2, self._kept_index[x.device])

    def collect(self, layer: nn.Module, k: Tensor, v: Tensor) -> None:
        """Hook for subclasses that need keys and values; does nothing here.

        It is called once per layer, with the keys and values (1, K, M, E) of all nodes, including
        those computed with the previous batch.
        """

    def _attend_in_blocks(
        self, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Returns the attention output (1, H, N, E), computed by torch block by block.

        The queries `q` are (1, H, N, E), the keys `k` and values `v` of all nodes (1, K, M, E).
        """
        if q.device not in self._blocks:
            self._blocks[q.device] = self._make_blocks(q.device)
        blocks = self._blocks[q.device]
        key = q.device, settings.window, settings.supported_by_sdpa
        if key not in self._masks:
            self._masks[key] = [block.mask(settings, q.dtype) for block in blocks]
        mixed = []
        for block, visible in zip(blocks, self._masks[key], strict=True):
            # Causal attention needs no mask if the block fits into the sliding window. A mask
            # would take twice the time.
            causal = visible is None
            if (
                causal
                and settings.window is not None
                and block.last - block.first > settings.window
            ):
                visible, causal = (
                    _sliding_window_mask(block.last - block.first, settings.window, q.device),
                    False,
                )
            own = q[:, :, block.first : block.last]
            mixed.append(
                masked_attention(
                    own, block.select(k), block.select(v), visible, settings, causal=causal
                )
            )
        return mixed[0] if len(mixed) == 1 else torch.cat(mixed, dim=2)

    def _make_blocks(self, device: torch.device) -> list[Block]:
        """Returns the blocks into which the nodes to compute are divided, with masks on `device`.

        A long chain at the root of a tree is a block of its own, because it needs no mask. The
        other nodes are divided where the tree is shallow, so that few ancestors of a block are
        outside it.
        """
        batch, given = self.batch, self.batch.num_cached
        total = len(batch.tokens)
        size = MIN_BLOCK_NODES.get(device.type, MIN_BLOCK_NODES["other"])
        root_chains = {
            first: last
            for first, last in chain_ranges(batch)
            if batch.parent[first] < 0 and last - first >= size
        }
        blocks: list[Block] = []
        first = given
        while first < total:
            if first in root_chains:
                last = root_chains[first]
                blocks.append(Block(first - given, last - given, slice(first, last)))
                first = last
                continue
            window = batch.position[first + size : first + 2 * size]
            last = first + size + int(window.argmin()) if len(window) else total
            last = min([last, *(start for start in root_chains if first < start < last)])
            keys = np.concatenate([batch.ancestors(first), np.arange(first, last)])
            node = np.arange(first, last)[:, None]
            visible = (keys <= node) & (node < batch.end[keys])
            distance = batch.position[node] - batch.position[keys]
            contiguous = keys[-1] - keys[0] + 1 == len(keys)
            which = slice(int(keys[0]), last) if contiguous else copy_to_device(keys, device)
            sent = copy_to_device(visible, device), copy_to_device(distance, device)
            blocks.append(Block(first - given, last - given, which, *sent))
            first = last
        return blocks


def _sliding_window_mask(count: int, window: int, device: torch.device) -> Tensor:
    """Returns the causal mask (count, count) of one sequence with a sliding window.

    It is True where a token (row) attends to another (column): to itself and to the `window - 1`
    tokens before it.
    """
    every = torch.ones(count, count, dtype=torch.bool, device=device)
    return every.tril().triu(1 - window)
