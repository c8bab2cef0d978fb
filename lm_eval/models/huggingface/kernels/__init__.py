"""Optional GPU kernels: one pass over memory where torch makes several.

Between its matrix products a model on a GPU only reads and writes memory, and each torch operation
goes over all of it. These kernels are compiled by Triton, which comes with the CUDA builds of
torch. Each is compared with torch before it is used.

The rest of the package uses the names below through `accelerated.py`, which has a plain alternative
for each. This folder can be deleted: everything keeps working, slower.
"""

from __future__ import annotations

from lm_eval.models.huggingface.kernels.attention import TreeAttention
from lm_eval.models.huggingface.kernels.compiler import can_compile
from lm_eval.models.huggingface.kernels.fusion import fuse
from lm_eval.models.huggingface.kernels.reduction import can_reduce, reduce_by_triton

__all__ = ["TreeAttention", "can_compile", "can_reduce", "fuse", "reduce_by_triton"]
