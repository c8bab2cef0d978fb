"""Evaluate any language model on any benchmark, reproducibly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports

__version__ = "0.1.0"

if TYPE_CHECKING:
    from lm_eval.evaluator import evaluate as evaluate
    from lm_eval.evaluator import simple_evaluate as simple_evaluate

__getattr__, __dir__ = lazy_exports(
    __name__,
    {"evaluate": "lm_eval.evaluator", "simple_evaluate": "lm_eval.evaluator"},
)
__all__ = ["__version__", "evaluate", "simple_evaluate"]
