"""The key-value cache of unfinished answers: one row per answer, growing by a token at a time.

Prompts are read as prefix trees, so what they share is computed once. Then each answer has a row of
its own, in which the column is the position. Only the unwritten end is padded and masked.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ordered, plan
from lm_eval.models.huggingface.attention import (
    Attend,
    Form,
    flash_attention,
    masked_attention,
    switched_on,
)
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.tree import KeysValues, Tree


class Rows:
    """Keys and values of some answers, (B, T, K, E) for every layer; itself an attention layout."""

    def __init__(self, lengths: Sequence[int], room: int, by: Attend) -> None:
        """`lengths` are those of the prompts; `room` is how many tokens follow each at most."""
        self.lengths = np.array(lengths, dtype=np.int64)
        self.width = int(self.lengths.max()) + room
        self.cache: KeysValues = {}
        self.by = by
        self.read = 0
        """How many prompt tokens the model was run on."""
        self._index: dict[torch.device, tuple[Tensor, Tensor, Tensor]] = {}

    def write(self, layer: nn.Module, row: Tensor, column: Tensor, k: Tensor, v: Tensor) -> None:
        """Stores keys and values (P, K, E) at rows and columns."""
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
        """Reads prompts into the rows of their answers; returns the next-token scores (B, V)."""
        scores: dict[int, Tensor] = {}
        before: Tree | None = None
        ordered = Ordered.of(prompts, [1] * len(prompts))
        for batch in plan(ordered, max_tokens=max_tokens):
            tree = before = _PromptTree(batch, self, rows_of, before)
            tokens, position = (
                torch.from_numpy(part).to(device)[None] for part in (tree.tokens, tree.position)
            )
            with switched_on(network.configs, tree):
                hidden = network.hidden(tokens, position)[0]
            self.read += len(tree.tokens)
            last = torch.from_numpy(batch.scored - batch.given).to(hidden.device)
            logits = network.logits(hidden.index_select(0, last))
            for place, prompt in enumerate(batch.requests):
                for r in rows_of[prompt]:
                    scores[r] = logits[place]
        return torch.stack([scores[r] for r in range(len(scores))])

    def step(self, network: Network, tokens: Tensor) -> Tensor:
        """Reads one more token (B, 1) in every row; returns the next-token scores (B, V)."""
        position = torch.from_numpy(self.lengths).to(tokens.device)[:, None]
        self._index.clear()
        self.lengths = self.lengths + 1
        with switched_on(network.configs, self):
            hidden = network.hidden(tokens, position)
        return network.logits(hidden[:, -1])

    def attend(self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        row, column, used = self._places(q.device)
        self.write(layer, row, column, k[:, :, 0], v[:, :, 0])
        keys, values = self.cache[layer]
        if self.by.flash and form.usual:
            return self._by_flash(q, keys, values, used, form)
        longest = int(self.lengths.max())
        place = torch.arange(longest, device=q.device)
        visible = place[None] < used[:, None]
        if form.window is not None:
            visible &= place[None] >= used[:, None] - form.window
        seen = visible[:, None, None]
        uniform = form.window is None and bool((self.lengths == longest).all())
        keys, values = keys[:, :longest].transpose(1, 2), values[:, :longest].transpose(1, 2)
        return masked_attention(q, keys, values, None if uniform else seen, form)

    def _places(self, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
        if device not in self._index:
            used = torch.from_numpy(self.lengths).to(device)
            self._index[device] = torch.arange(len(used), device=device), used - 1, used
        return self._index[device]

    def _by_flash(
        self, q: Tensor, keys: Tensor, values: Tensor, used: Tensor, form: Form
    ) -> Tensor:
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
            form,
            used.to(torch.int32),
        )
        return mixed[:, :, None]

    def keep(self, rows: Sequence[int]) -> None:
        """Drops all other rows."""
        self.lengths = self.lengths[list(rows)]
        self._index.clear()
        for layer, (keys, values) in self.cache.items():
            chosen = torch.tensor(list(rows), device=keys.device)
            self.cache[layer] = keys.index_select(0, chosen), values.index_select(0, chosen)


class _PromptTree(Tree):
    """A tree of prompts that copies their keys and values into the rows of their answers."""

    def __init__(
        self,
        batch: Batch,
        rows: Rows,
        rows_of: Sequence[Sequence[int]],
        before: Tree | None,
    ) -> None:
        super().__init__(batch, kernels=rows.by.kernels, before=before)
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
        if k.device not in self._sent:
            self._sent[k.device] = [torch.from_numpy(part).to(k.device) for part in self._copy]
        row, column, node = self._sent[k.device]
        keys, values = (x[0].transpose(0, 1).index_select(0, node) for x in (k, v))
        self._rows.write(layer, row, column, keys, values)
