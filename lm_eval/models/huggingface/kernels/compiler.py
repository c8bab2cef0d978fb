"""Triton, where it can be of use: elsewhere `triton` is None, and no kernel is defined.

Without a GPU it would only take memory, some hundred megabytes; its interpreter is for tests.
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

__all__ = ["tl", "triton"]
