"""Reduces next-token scores in one pass, where torch makes several.

With a vocabulary of a hundred thousand tokens, the scores of one batch take gigabytes.
"""

from __future__ import annotations

import functools
import logging

import torch
from torch import Tensor

from lm_eval.models.huggingface.kernels.compiler import tl, triton
from lm_eval.models.huggingface.torch_reduction import reduce_by_torch

logger = logging.getLogger(__name__)

BLOCK = 4096


def reduce_by_triton(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns what `reduce_by_torch` does, by the kernel below."""
    logits = logits.contiguous()
    total = torch.empty(len(logits), device=logits.device, dtype=torch.float32)
    best = torch.empty(len(logits), device=logits.device, dtype=torch.int64)
    with torch.cuda.device(logits.device):
        _reduce[(len(logits),)](logits, total, best, logits.shape[1], block=BLOCK)
    return total, best


@functools.cache
def triton_works() -> bool:
    """Whether the kernel compiles on this machine and agrees with torch on a trial."""
    if triton is None:
        return False
    try:
        trial = torch.randn(3, BLOCK + 77, device="cuda").bfloat16()
        total, best = reduce_by_triton(trial)
        expected_total, expected_best = reduce_by_torch(trial)
    except Exception as error:  # compiler and driver errors share no base class
        logger.warning(
            "The Triton kernel for next-token scores is not used: %s: %s",
            type(error).__name__,
            error,
        )
        return False
    agrees = torch.allclose(total, expected_total, atol=1e-4) and torch.equal(best, expected_best)
    if not agrees:
        logger.warning("The Triton kernel for next-token scores is not used: it differs from torch")
    return bool(agrees)


def can_reduce(logits: Tensor) -> bool:
    """Whether `reduce_by_triton` can take these scores here."""
    return bool(logits.is_cuda and logits.dtype != torch.float64 and triton_works())


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _reduce(scores, total, best, width, block: tl.constexpr):  # type: ignore[no-untyped-def]
        """One program per row: running maximum, its first place, running sum of exponentials."""
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
