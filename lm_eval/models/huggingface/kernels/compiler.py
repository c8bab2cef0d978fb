"""Triton, where it is useful: elsewhere `triton` is None and no kernel is defined.

Without a GPU, importing it would only take some hundred megabytes of memory; its interpreter is for
tests.
"""

from __future__ import annotations

import os

import torch

try:
    if not torch.cuda.is_available() and not os.environ.get("TRITON_INTERPRET"):
        raise ImportError("there is no GPU")
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None

__all__ = ["can_compile", "tl", "triton"]


def can_compile() -> bool:
    """Whether kernels can be compiled here."""
    return triton is not None
