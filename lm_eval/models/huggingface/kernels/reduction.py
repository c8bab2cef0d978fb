"""A kernel that reduces next-token logits in one pass, where torch makes several.

With a vocabulary of a hundred thousand tokens, the logits of one batch take gigabytes.
"""

from __future__ import annotations

import functools
import logging

import torch
from torch import Tensor

from lm_eval.models.huggingface.kernels.compiler import can_run_on, tl, triton
from lm_eval.models.huggingface.torch_reduction import reduce_by_torch

logger = logging.getLogger(__name__)

BLOCK = 4096


def reduce_by_triton(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-sum-exp and the argmax of each row, like `reduce_by_torch`, by our kernel."""
    logits = logits.contiguous()
    total = torch.empty(len(logits), device=logits.device, dtype=torch.float32)
    best = torch.empty(len(logits), device=logits.device, dtype=torch.int64)
    with torch.cuda.device_of(logits):
        _reduce[(len(logits),)](logits, total, best, logits.shape[1], block=BLOCK)
    return total, best


@functools.cache
def _works_on(device: str) -> bool:
    """Returns whether the kernel compiles on this type of device and agrees with torch.

    It is tried once per process. If it fails or disagrees, a warning is logged.
    """
    try:
        trial = torch.randn(3, BLOCK + 77, device=device).bfloat16()
        total, best = reduce_by_triton(trial)
        expected_total, expected_best = reduce_by_torch(trial)
    except Exception as error:  # compiler and driver errors share no base class
        logger.warning(
            "The Triton kernel for next-token logits failed; torch is used instead: %s: %s",
            type(error).__name__,
            error,
        )
        return False
    agrees = torch.allclose(total, expected_total, atol=1e-4) and torch.equal(best, expected_best)
    if not agrees:
        logger.warning(
            "The Triton kernel for next-token logits gives other results than torch; torch is used "
            "instead."
        )
    return bool(agrees)


def can_reduce(logits: Tensor) -> bool:
    """Returns whether `reduce_by_triton` supports these logits on this machine.

    They must be on a GPU and not in float64, and the kernel must work there.
    """
    device = logits.device
    return can_run_on(device) and logits.dtype != torch.float64 and _works_on(device.type)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _reduce(scores, total, best, width, block: tl.constexpr):  # type: ignore[no-untyped-def]
        """Reduces one row: running maximum, its first index, and running sum of exponentials."""
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, block)
        top = tl.full((), float("-inf"), tl.float32)
        summed = tl.full((), 0.0, tl.float32)
        place = tl.full((), 0, tl.int64)
        for start in range(0, width, block):
            inside = start + column < width
            value = tl.load(scores + row * width + start + column, mask=inside, other=float("-inf"))
            value = value.to(tl.float32)
            highest = tl.max(value, 0)
            found = (start + tl.argmax(value, 0)).to(tl.int64)
            place = tl.where(highest > top, found, place)
            above = tl.maximum(top, highest)
            summed = summed * tl.exp(top - above) + tl.sum(tl.exp(value - above), 0)
            top = above
        tl.store(total + row, top + tl.log(summed))
        tl.store(best + row, place)
