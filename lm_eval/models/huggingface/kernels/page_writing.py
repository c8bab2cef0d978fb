"""A kernel that writes the keys and values of prompt tokens to the pages of a cache.

torch would first gather the tokens, and then scatter them, for keys and values separately.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval.models.huggingface.kernels.compiler import can_run_on, tl, triton


def supports_writing(k: Tensor, v: Tensor) -> bool:
    """Returns whether the kernel supports keys and values (1, K, N, E) of these shapes."""
    return can_run_on(k.device) and k.shape == v.shape and k.stride(3) == v.stride(3) == 1


def write_pages(
    k: Tensor, v: Tensor, keys: Tensor, values: Tensor, node: Tensor, page: Tensor, offset: Tensor
) -> None:
    """Writes keys and values (1, K, N, E) of the given nodes to pages (pages, K, PAGE, E)."""
    if not len(node):
        return
    _, heads, _, width = k.shape
    with torch.cuda.device_of(k):
        _write_pages[(len(node),)](
            k, v, keys, values, node, page, offset, heads,
            k.stride(1), k.stride(2), v.stride(1), v.stride(2),
            *keys.stride()[:3], *values.stride()[:3],
            width, triton.next_power_of_2(heads), triton.next_power_of_2(width), num_warps=2,
        )  # fmt: skip


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _write_pages(  # type: ignore[no-untyped-def]
        k, v, keys, values, node, page, offset, heads,
        k_head, k_row, v_head, v_row,
        key_page, key_head, key_place, value_page, value_head, value_place,
        width: tl.constexpr, most_heads: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """Writes the keys and values of one node, for all heads."""
        which = tl.program_id(0)
        source = tl.load(node + which)
        target, place = tl.load(page + which), tl.load(offset + which)
        head = tl.arange(0, most_heads)[:, None]
        column = tl.arange(0, block)[None, :]
        inside = (head < heads) & (column < width)
        found = tl.load(k + source * k_row + head * k_head + column, mask=inside, other=0.0)
        at = target * key_page + head * key_head + place * key_place + column
        tl.store(keys + at, found, mask=inside)
        found = tl.load(v + source * v_row + head * v_head + column, mask=inside, other=0.0)
        at = target * value_page + head * value_head + place * value_place + column
        tl.store(values + at, found, mask=inside)
