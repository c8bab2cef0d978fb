"""The functions of the published module of this name, for code that imports them.

Importing it runs no program, unlike the published module.
"""

from __future__ import annotations

from lm_eval.code_eval import CodeEval, pass_at_k
from lm_eval.tasks.humaneval.programs import completed as build_predictions
from lm_eval.tasks.humaneval.programs import completed_instruct as build_predictions_instruct

__all__ = ["build_predictions", "build_predictions_instruct", "compute_", "pass_at_k"]

compute_ = CodeEval()
