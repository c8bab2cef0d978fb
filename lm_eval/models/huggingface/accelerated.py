"""The one door to the optional subpackage `kernels`, with a plain alternative for each part.

Nothing else outside of `kernels/` imports it. Deleting that folder leaves every answer the same;
only GPUs get slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from lm_eval.engine.plan import Batch
from lm_eval.models.huggingface.torch_reduction import reduce_by_torch

if TYPE_CHECKING:
    from lm_eval.models.huggingface.kernels import TreeAttention

try:
    import lm_eval.models.huggingface.kernels as kernels
except ModuleNotFoundError as error:
    if error.name != "lm_eval.models.huggingface.kernels":
        raise  # the folder is there, and something that it imports is not
    kernels = None  # type: ignore[assignment]
else:
    if getattr(kernels, "__file__", None) is None:  # its files are gone, a `__pycache__` was left
        kernels = None  # type: ignore[assignment]


def can_compile() -> bool:
    """Whether kernels are installed and there is a device to compile them for."""
    return kernels is not None and kernels.can_compile()


def tree_attention(batch: Batch) -> TreeAttention | None:
    """Returns the attention kernel prepared for one prefix tree; None without `kernels`."""
    return None if kernels is None else kernels.TreeAttention(batch)


def fused_forwards(model: nn.Module) -> dict[nn.Module, Callable[..., Any]]:
    """Returns, for each module that a kernel can stand in for, the forward function to use.

    Empty without `kernels`, or where no kernel agrees with a module.
    """
    return {} if kernels is None else kernels.fuse(model)


def reduce_rows(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each row's log-sum-exp and the index of its largest score, by a kernel if it can."""
    if kernels is not None and kernels.can_reduce(logits):
        return kernels.reduce_by_triton(logits)
    return reduce_by_torch(logits)
