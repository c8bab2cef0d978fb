"""The key-value cache of unfinished answers: one row per answer, one column per position.

Prompts are read as prefix trees, so that shared prefixes are computed once; their keys and values
are then copied to the rows of their answers. Rows grow by one token per step. Only the unwritten
end of a row is padding, which is masked.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ints, SortedSequences, concatenated_ranges, plan
from lm_eval.models.huggingface.attention import (
    AttentionKernels,
    AttentionSettings,
    additive_mask,
    flash_attention,
    masked_attention,
    use_layout,
)
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.tree import KeysValues, TreeLayout


class KeyValueCache:
    """The key-value cache (B, T, K, E) of some answers, per layer; also an attention layout."""

    def __init__(
        self, lengths: Sequence[int], max_new_tokens: int, kernels: AttentionKernels
    ) -> None:
        """Prepares an empty cache.

        Args:
            lengths: the number of prompt tokens of each row.
            max_new_tokens: the maximum number of tokens of an answer.
            kernels: the attention kernels that may be used.
        """
        self.lengths = np.array(lengths, dtype=np.int64)
        self.width = int(self.lengths.max()) + max_new_tokens
        self.cache: KeysValues = {}
        self.kernels = kernels
        self.prompt_tokens_computed = 0
        """How many prompt tokens were computed, those of shared prefixes once."""
        self._index: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    def write(self, layer: nn.Module, row: Tensor, column: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores the keys and values of P tokens of one layer.

        `k` and `v` have the shape (tokens P, key-value heads, head size). Token `i` is stored for
        the answer `row[i]` (a row of the batch) at the position `column[i]` of its sequence.
        """
        if layer not in self.cache:
            shape = (len(self.lengths), self.width, *k.shape[1:])
            self.cache[layer] = k.new_zeros(shape), v.new_zeros((*shape[:3], v.shape[-1]))
        keys, values = self.cache[layer]
        keys[row, column], values[row, column] = k, v

    def prefill(
        self,
        network: Network,
        prompts: Sequence[Sequence[int]],
        rows_of: Sequence[Sequence[int]],
        max_tokens: int,
        device: torch.device,
    ) -> Tensor:
        """Reads the prompts into the rows of their answers; returns the next-token logits (B, V).

        Args:
            network: the model.
            prompts: the tokens of each prompt.
            rows_of: for each prompt, the rows of its answers.
            max_tokens: the maximum number of tokens in one forward pass.
            device: where tokens are put.
        """
        scores: dict[int, Tensor] = {}
        previous: TreeLayout | None = None
        ordered = SortedSequences.of(prompts, [1] * len(prompts))
        for batch in plan(ordered, max_tokens=max_tokens):
            tree = previous = _PromptTree(batch, self, rows_of, previous)
            tokens, position = (
                torch.from_numpy(part).to(device)[None] for part in (tree.tokens, tree.position)
            )
            with use_layout(network.configs, tree):
                hidden = network.hidden(tokens, position)[0]
            self.prompt_tokens_computed += len(tree.tokens)
            last = torch.from_numpy(batch.scored - batch.num_cached).to(hidden.device)
            logits = network.logits(hidden.index_select(0, last))
            for place, prompt in enumerate(batch.requests):
                for r in rows_of[prompt]:
                    scores[r] = logits[place]
        return torch.stack([scores[r] for r in range(len(scores))])

    def step(self, network: Network, tokens: Tensor) -> Tensor:
        """Reads one more token (B, 1) in every row; returns the next-token logits (B, V)."""
        position = torch.from_numpy(self.lengths).to(tokens.device)[:, None]
        self._index.clear()
        self.lengths = self.lengths + 1
        with use_layout(network.configs, self):
            hidden = network.hidden(tokens, position)
        return network.logits(hidden[:, -1])

    def extend(
        self, network: Network, tokens: Sequence[Sequence[int]], device: torch.device
    ) -> Tensor:
        """Reads one or more tokens in every row; returns their hidden states (tokens, D).

        The tokens follow the first `lengths` tokens of their row. They are stored, but `lengths`
        does not change: the caller decides how many of them count.
        """
        counts = np.array([len(part) for part in tokens])
        layout = _NewTokens(self, counts)
        flat = np.concatenate([np.asarray(part, dtype=np.int64) for part in tokens])
        given = (torch.from_numpy(part).to(device)[None] for part in (flat, layout.column))
        with use_layout(network.configs, layout):
            return network.hidden(*given)[0]

    def attend(
        self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Stores the new token's keys and values of one layer; returns the attention output.

        Called by the model during `step`; see `attention.Layout`. `q` has the shape (B, H, 1, E),
        and so has the output; `k` and `v` have (B, K, 1, E).
        """
        row, column, used = self._write_positions(q.device)
        self.write(layer, row, column, k[:, :, 0], v[:, :, 0])
        keys, values = self.cache[layer]
        if self.kernels.flash and settings.supported_by_sdpa:
            return self._flash_attend(q, keys, values, used, settings)
        longest = int(self.lengths.max())
        place = torch.arange(longest, device=q.device)
        visible = place[None] < used[:, None]
        if settings.window is not None:
            visible &= place[None] >= used[:, None] - settings.window
        seen = visible[:, None, None]
        uniform = settings.window is None and bool((self.lengths == longest).all())
        keys, values = keys[:, :longest].transpose(1, 2), values[:, :longest].transpose(1, 2)
        return masked_attention(q, keys, values, None if uniform else seen, settings)

    def _write_positions(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        """Returns three tensors (B) on this device, with one number per row.

        They are the index of the row, the column of its last token, and its length.
        """
        if device not in self._index:
            used = torch.from_numpy(self.lengths).to(device)
            self._index[device] = torch.arange(len(used), device=device), used - 1, used
        return self._index[device]

    def _flash_attend(
        self, q: Tensor, keys: Tensor, values: Tensor, used: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Returns the attention output (B, H, 1, E) of each row's last token, by flash attention.

        `keys` and `values` are the cache (B, T, K, E) of the layer; `used` (B) are the lengths of
        its rows.
        """
        count = len(self.lengths)
        every = torch.arange(count + 1, device=q.device, dtype=torch.int32)
        mixed = flash_attention(
            q[:, :, 0],
            keys.flatten(0, 1),
            values.flatten(0, 1),
            every,
            every * self.width,
            1,
            self.width,
            settings,
            used.to(torch.int32),
        )
        return mixed[:, :, None]

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all rows but the given ones, which are then numbered from 0 in the given order."""
        self.lengths = self.lengths[list(rows)]
        self._index.clear()
        for layer, (keys, values) in self.cache.items():
            chosen = torch.tensor(list(rows), device=keys.device)
            self.cache[layer] = keys.index_select(0, chosen), values.index_select(0, chosen)


class _NewTokens:
    """The attention layout of one or more new tokens per row, all packed into one sequence."""

    def __init__(self, cache: KeyValueCache, counts: Ints) -> None:
        """`counts` are the numbers of new tokens of the rows of `cache`."""
        self._cache = cache
        self._counts = counts
        self.row = np.repeat(np.arange(len(counts)), counts)
        self.place = concatenated_ranges(np.zeros_like(counts), counts)
        """The index of each new token among those of its row."""
        self._most = int(counts.max())
        self._longest = int((cache.lengths + counts).max())
        self.column = cache.lengths[self.row] + self.place
        self._sent: dict[torch.device, list[Tensor]] = {}
        self._masks: dict[tuple[Any, ...], Tensor] = {}

    def attend(
        self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Stores the new tokens' keys and values of one layer; returns the attention output.

        See `attention.Layout`. `q` has the shape (1, H, tokens, E), and so has the output.
        """
        cache = self._cache
        if q.device not in self._sent:
            parts = (self.row, self.place, self.column, cache.lengths)
            self._sent[q.device] = [torch.from_numpy(part).to(q.device) for part in parts]
        row, place, column, _ = self._sent[q.device]
        cache.write(layer, row, column, k[0].transpose(0, 1), v[0].transpose(0, 1))
        # One sequence of queries per answer: those of answers with fewer new tokens are padded.
        # Heads that share keys are parts of one sequence, which is faster than as heads.
        heads, width = q.shape[1], q.shape[3]
        groups = heads // k.shape[1] if settings.supported_by_sdpa else 1
        shape = len(self._counts), heads // groups, groups, self._most, width
        padded = q.new_zeros(shape)
        padded[row, :, :, place] = q[0].transpose(0, 1).unflatten(1, shape[1:3])
        keys, values = (x[:, : self._longest].transpose(1, 2) for x in cache.cache[layer])
        mixed = masked_attention(
            padded.flatten(2, 3), keys, values, self._mask(q, groups, settings), settings
        )
        found = mixed.unflatten(2, (groups, self._most))[row, :, :, place]
        return found.flatten(1, 2).transpose(0, 1)[None]

    def _mask(self, q: Tensor, groups: int, settings: AttentionSettings) -> Tensor:
        """Returns which keys each query sees, (B, 1, groups * queries, keys), for all layers.

        The mask is for queries like `q`, repeated for each of the `groups`; see `Block.mask`.
        """
        key = q.device, q.dtype, settings.window, groups, settings.supported_by_sdpa
        if key not in self._masks:
            lengths = self._sent[q.device][3]
            here = lengths[:, None] + torch.arange(self._most, device=q.device).repeat(groups)
            column = torch.arange(self._longest, device=q.device)
            visible = column <= here[..., None]
            if settings.window is not None:
                visible &= column > here[..., None] - settings.window
            seen = visible[:, None]
            self._masks[key] = additive_mask(seen, q.dtype) if settings.supported_by_sdpa else seen
        return self._masks[key]


class _PromptTree(TreeLayout):
    """A tree of prompts that copies their keys and values to the rows of their answers."""

    def __init__(
        self,
        batch: Batch,
        rows: KeyValueCache,
        rows_of: Sequence[Sequence[int]],
        previous: TreeLayout | None,
    ) -> None:
        super().__init__(batch, kernels=rows.kernels.tree, previous=previous)
        self._rows = rows
        row: list[np.ndarray] = []
        column: list[np.ndarray] = []
        node: list[np.ndarray] = []
        for prompt, last in zip(batch.requests, batch.scored, strict=True):
            path = batch.path(int(last))
            for r in rows_of[prompt]:
                row.append(np.full(len(path), r))
                column.append(np.arange(len(path)))
                node.append(path)
        self._copy = [np.concatenate(part) for part in (row, column, node)]
        self._sent: dict[torch.device, list[Tensor]] = {}

    def collect(self, layer: nn.Module, k: Tensor, v: Tensor) -> None:
        """Copies the keys and values of one layer, (1, K, nodes, E), to the rows of the answers.

        Each node (token of the tree) is copied to every row whose prompt contains it, at the column
        of its position in that prompt.
        """
        if k.device not in self._sent:
            self._sent[k.device] = [torch.from_numpy(part).to(k.device) for part in self._copy]
        row, column, node = self._sent[k.device]
        keys, values = (x[0].transpose(0, 1).index_select(0, node) for x in (k, v))
        self._rows.write(layer, row, column, keys, values)
