"""Triton, where it is installed: `triton` is None elsewhere, and no kernel is defined."""

from __future__ import annotations

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None
    tl = None

__all__ = ["tl", "triton"]
