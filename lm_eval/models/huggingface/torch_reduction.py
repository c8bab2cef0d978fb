"""Reduces next-token scores with plain torch operations."""

from __future__ import annotations

import torch
from torch import Tensor


def reduce_by_torch(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns each row's log-sum-exp and the index of its largest score."""
    return torch.logsumexp(at_least_float32(logits), dim=-1), logits.argmax(dim=-1)


def at_least_float32(logits: Tensor) -> Tensor:
    """Returns scores in a format precise enough for sums; float64 stays as it is."""
    return logits if logits.dtype == torch.float64 else logits.float()
