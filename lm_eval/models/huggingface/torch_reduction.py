"""Reduces next-token logits with plain torch operations."""

from __future__ import annotations

import torch
from torch import Tensor


def reduce_by_torch(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the log-sum-exp of each row of `logits` (R, V), and the index of its maximum."""
    return torch.logsumexp(at_least_float32(logits), dim=-1), logits.argmax(dim=-1)


def at_least_float32(logits: Tensor) -> Tensor:
    """Returns the logits in float32, or unchanged if they are float64."""
    return logits if logits.dtype == torch.float64 else logits.float()
