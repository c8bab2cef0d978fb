"""Evaluates language models on benchmarks; the main functions are imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports
from lm_eval._version import __version__

if TYPE_CHECKING:
    from lm_eval.comparison.compare import compare as compare
    from lm_eval.evaluator import evaluate as evaluate
    from lm_eval.evaluator import resume as resume
    from lm_eval.evaluator import simple_evaluate as simple_evaluate
    from lm_eval.features import capabilities as capabilities
    from lm_eval.live import LiveTasks as LiveTasks
    from lm_eval.live import evaluate_live as evaluate_live
    from lm_eval.models.contract.check import check_model as check_model
    from lm_eval.rescore import score as score

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "LiveTasks": "lm_eval.live",
        "capabilities": "lm_eval.features",
        "check_model": "lm_eval.models.contract.check",
        "compare": "lm_eval.comparison.compare",
        "evaluate": "lm_eval.evaluator",
        "evaluate_live": "lm_eval.live",
        "resume": "lm_eval.evaluator",
        "score": "lm_eval.rescore",
        "simple_evaluate": "lm_eval.evaluator",
    },
)
__all__ = [
    "LiveTasks",
    "__version__",
    "capabilities",
    "check_model",
    "compare",
    "evaluate",
    "evaluate_live",
    "resume",
    "score",
    "simple_evaluate",
]
