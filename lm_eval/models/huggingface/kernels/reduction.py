"""One pass over next-token scores, where torch makes several.

With a vocabulary of a hundred thousand the scores of one batch are gigabytes.
"""

from __future__ import annotations

import functools
import logging

import torch
from torch import Tensor

from lm_eval.models.huggingface.kernels.compiler import tl, triton

logger = logging.getLogger(__name__)

BLOCK = 4096


def reduce_by_torch(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The logarithm of each row's sum of exponentials, and its likeliest token."""
    return torch.logsumexp(at_least_float32(logits), dim=-1), logits.argmax(dim=-1)


def at_least_float32(logits: Tensor) -> Tensor:
    """Scores in a format fit to be summed up; float64, where asked for, stays."""
    return logits if logits.dtype == torch.float64 else logits.float()


def reduce_by_triton(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The same by the kernel below."""
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
        agrees: bool = torch.allclose(total, expected_total, atol=1e-4)
        return agrees and bool(torch.equal(best, expected_best))
    except Exception as error:  # whatever a compiler may say: there is another way
        logger.info("The compiled reduction is not used: %s", error)
        return False


def reduce_rows(logits: Tensor) -> tuple[Tensor, Tensor]:
    """By whichever way is quickest here."""
    compiled = logits.is_cuda and logits.dtype != torch.float64 and triton_works()
    return reduce_by_triton(logits) if compiled else reduce_by_torch(logits)


if triton is not None:

    @triton.jit  # type: ignore[untyped-decorator]
    def _reduce(scores, total, best, width, block: tl.constexpr):  # type: ignore[no-untyped-def]
        """One program a row: running maximum, its first place, running sum of exponentials."""
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
