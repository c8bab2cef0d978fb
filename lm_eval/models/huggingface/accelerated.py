"""Chooses faster code for parts of a model, with a fallback for each.

This is the only module that imports the optional subpackage `kernels`. If that folder is deleted,
all answers stay the same; only GPUs become slower.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lm_eval.engine.plan import Batch
from lm_eval.models.huggingface.onednn import is_linear, linear_forwards
from lm_eval.models.huggingface.torch_reduction import reduce_by_torch

if TYPE_CHECKING:
    from lm_eval.models.huggingface.kernels import TreeAttention

try:
    import lm_eval.models.huggingface.kernels as kernels
except ModuleNotFoundError as error:
    if error.name != "lm_eval.models.huggingface.kernels":
        raise  # the folder exists, but a module that it imports does not
    kernels = None  # type: ignore[assignment]
else:
    if getattr(kernels, "__file__", None) is None:  # only its `__pycache__` is left
        kernels = None  # type: ignore[assignment]


def can_compile() -> bool:
    """Returns whether our subpackage `kernels` exists and has imported its compiler, Triton.

    `kernels` imports Triton, if installed, when torch finds a GPU or TRITON_INTERPRET is set. This
    function imports and compiles nothing.
    """
    return kernels is not None and kernels.can_compile()


def tree_attention(batch: Batch) -> TreeAttention | None:
    """Returns the attention kernel prepared for one prefix tree; None without `kernels`."""
    return None if kernels is None else kernels.TreeAttention(batch)


def paged_attention(q: Tensor, k: Tensor, v: Tensor) -> Callable[..., Tensor] | None:
    """Returns the attention kernels for pages (`attend_pages`); None if they cannot be used.

    That is so without `kernels`, without Triton, and for heads (B, H or K, 1, E) whose shapes the
    kernels do not support.
    """
    if kernels is None or not kernels.supports_pages(q, k, v):
        return None
    return kernels.attend_pages


def faster_forwards(trunk: nn.Module, head: nn.Module) -> dict[nn.Module, Callable[..., Any]]:
    """Returns the forward functions to use in place of those of some of the model's modules.

    On a GPU, each runs a fused kernel; there are none without `kernels`, and for modules with which
    no kernel agrees. On a CPU, linear layers use oneDNN where that is faster (`onednn.py`).
    """
    fused = {} if kernels is None else kernels.fuse(trunk)
    return {**linear_forwards([*trunk.modules(), *head.modules()]), **fused}


def uses_kernels(forwards: Iterable[nn.Module]) -> bool:
    """Returns whether any of these modules is replaced by a kernel, and not only by oneDNN."""
    return not all(is_linear(module) for module in forwards)


def merged_projections(model: nn.Module, most_bytes: int) -> dict[nn.Module, Callable[..., Any]]:
    """Returns forward functions that compute several projections in one matrix product.

    They hold a copy of the weights, of at most `most_bytes`. The result is empty without `kernels`,
    and on a CPU.
    """
    return {} if kernels is None else kernels.merge_projections(model, most_bytes)


def write_pages(
    k: Tensor, v: Tensor, keys: Tensor, values: Tensor, node: Tensor, page: Tensor, offset: Tensor
) -> None:
    """Writes keys and values (1, K, N, E) of some nodes to pages (pages, K, PAGE, E).

    `node` are the nodes, `page` and `offset` where each is written to. Uses the Triton kernel if it
    supports these tensors, and torch otherwise.
    """
    if kernels is not None and kernels.supports_writing(k, v):
        kernels.write_pages(k, v, keys, values, node, page, offset)
        return
    for new, pages in ((k, keys), (v, values)):
        pages[page, :, offset] = new[0].transpose(0, 1).index_select(0, node)


def reduce_rows(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-sum-exp of each row of `logits` (R, V), and the index of its maximum.

    Uses the Triton kernel if it supports these logits, and torch otherwise.
    """
    if kernels is not None and kernels.can_reduce(logits):
        return kernels.reduce_by_triton(logits)
    return reduce_by_torch(logits)
