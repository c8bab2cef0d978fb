"""Imports Triton if it can be used; otherwise `triton` is None and no kernel is defined.

Without a GPU Triton is not imported: it would take several hundred MB for nothing. Triton's
interpreter, which needs no GPU, is for tests (TRITON_INTERPRET=1).
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

__all__ = ["can_compile", "can_run_on", "tl", "triton"]


def can_compile() -> bool:
    """Returns whether Triton was imported, so that kernels can be compiled on this machine.

    It was if it is installed and torch finds a GPU, or if TRITON_INTERPRET is set.
    """
    return triton is not None


def can_run_on(device: torch.device) -> bool:
    """Returns whether kernels run on a device: on GPUs, and on a CPU in Triton's interpreter."""
    return can_compile() and (device.type == "cuda" or not torch.cuda.is_available())
