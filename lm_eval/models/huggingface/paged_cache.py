"""A key-value cache in pages, for decoding with rows that come and go.

Prompts are read as prefix trees, and the keys and values of their tokens are written to pages
(`pages.py`), those of a shared full page once. In a decoding step, every row stores its new token's
keys and values and attends to its pages.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from lm_eval.engine.plan import Batch, Ints
from lm_eval.models.huggingface.accelerated import paged_attention, write_pages
from lm_eval.models.huggingface.attention import AttentionSettings, masked_attention
from lm_eval.models.huggingface.packing import copy_to_device
from lm_eval.models.huggingface.pages import PAGE, PagedRows
from lm_eval.models.huggingface.tree import KeysValues, TreeLayout


class PagedCache:
    """The pages of all layers."""

    def __init__(self, pages: int) -> None:
        """`pages` is the number of pages per layer. They are allocated when they are written."""
        self.pages = pages
        self.cache: KeysValues = {}
        """The keys and values of each layer, (pages, K, PAGE, E)."""

    @property
    def key_heads(self) -> int:
        """The number of key heads of the layers; a layer must have been written to."""
        keys, _ = next(iter(self.cache.values()))
        return int(keys.shape[1])

    def write(
        self, layer: nn.Module, k: Tensor, v: Tensor, node: Tensor, page: Tensor, offset: Tensor
    ) -> None:
        """Stores keys and values (1, K, N, E) of the given nodes at the given places of pages."""
        if layer not in self.cache:
            shapes = [(self.pages, x.shape[1], PAGE, x.shape[3]) for x in (k, v)]
            # Not zeroed: keys and values that were not written are never read.
            self.cache[layer] = k.new_empty(shapes[0]), v.new_empty(shapes[1])
        write_pages(k, v, *self.cache[layer], node, page, offset)


class PagedStep:
    """The attention layout of one decoding step (see `attention.Layout`)."""

    def __init__(self, cache: PagedCache, rows: PagedRows) -> None:
        """`rows` are the rows of the batch, each with one new token."""
        self._cache = cache
        self._rows = rows

    def attend(
        self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Stores the new tokens' keys and values of one layer; returns the attention output.

        Called by the model during a decoding step; see `attention.Layout`. `q` has the shape (B, H,
        1, E), and so has the output; `k` and `v` have (B, K, 1, E).
        """
        keys, values = self._cache.cache[layer]
        attend = paged_attention(q, k, v)
        mixed = (attend or attend_pages_by_torch)(
            q[:, :, 0], k[:, :, 0], v[:, :, 0], keys, values, self._rows, settings
        )
        return mixed[:, :, None]


def attend_pages_by_torch(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    settings: AttentionSettings,
) -> Tensor:
    """Returns the attention output (B, H, E) of one new token per row, without our kernels.

    Stores the new keys `k` and values `v` (B, K, E) in the pages `keys` and `values` (pages, K,
    PAGE, E). Shared pages are read once per row.
    """
    table, position = rows.table.long(), rows.position.long()
    page = table.gather(1, (position // PAGE)[:, None])[:, 0]
    keys[page, :, position % PAGE], values[page, :, position % PAGE] = k, v
    place = torch.arange(table.shape[1] * PAGE, device=q.device)
    visible = place <= position[:, None]
    if settings.window is not None:
        visible &= place > position[:, None] - settings.window

    def read(pages: Tensor) -> Tensor:
        """Returns what is stored for each row, (B, K, positions, E), zero where not visible."""
        found = pages[table].transpose(1, 2).flatten(2, 3)
        return found.masked_fill(~visible[:, None, :, None], 0.0)  # unwritten values may be NaN

    return masked_attention(
        q[:, :, None], read(keys), read(values), visible[:, None, None], settings
    )[:, :, 0]


class PromptPages(TreeLayout):
    """A tree of prompts that writes their keys and values to pages."""

    def __init__(
        self,
        batch: Batch,
        cache: PagedCache,
        places: Ints,
        *,
        kernels: bool,
        previous: TreeLayout | None,
    ) -> None:
        """Prepares the layout.

        Args:
            batch: the packed prefix tree.
            cache: the cache to write to.
            places: the nodes to write, and the page and the offset in it that each is written to
                (3, N).
            kernels: whether to use our attention kernel for trees.
            previous: the layout of the previous batch.
        """
        super().__init__(batch, kernels=kernels, previous=previous)
        self._cache = cache
        # An even number, so that each part begins at 16 bytes: the kernel is compiled anew for
        # pointers that are aligned differently.
        self._count = places.shape[1]
        self._places = np.pad(places, ((0, 0), (0, self._count % 2)))
        self._sent: dict[torch.device, Tensor] = {}

    def collect(self, layer: nn.Module, k: Tensor, v: Tensor) -> None:
        """Writes the keys and values of one layer, (1, K, nodes, E), to the pages."""
        if k.device not in self._sent:
            self._sent[k.device] = copy_to_device(self._places, k.device)
        node, page, offset = self._sent[k.device][:, : self._count]
        self._cache.write(layer, k, v, node, page, offset)
