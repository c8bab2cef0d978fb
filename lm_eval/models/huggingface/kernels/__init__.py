"""Optional GPU kernels, each of which replaces several torch operations.

Between its matrix products, a model on a GPU is limited by memory bandwidth, and each torch
operation reads and writes all of the data. These kernels pass over it once. They are compiled by
Triton, which comes with the CUDA builds of torch. Each is compared with torch before it is used.

The rest of the package uses the names below through `accelerated.py`, which has a fallback for
each. If this folder is deleted, everything still works, more slowly.
"""

from __future__ import annotations

from lm_eval.models.huggingface.kernels.attention import TreeAttention
from lm_eval.models.huggingface.kernels.compiler import can_compile
from lm_eval.models.huggingface.kernels.fusion import fuse
from lm_eval.models.huggingface.kernels.page_writing import supports_writing, write_pages
from lm_eval.models.huggingface.kernels.paged_attention import attend_pages, supports_pages
from lm_eval.models.huggingface.kernels.projections import merge_projections
from lm_eval.models.huggingface.kernels.reduction import can_reduce, reduce_by_triton

__all__ = [
    "TreeAttention",
    "attend_pages",
    "can_compile",
    "can_reduce",
    "fuse",
    "merge_projections",
    "reduce_by_triton",
    "supports_pages",
    "supports_writing",
    "write_pages",
]
