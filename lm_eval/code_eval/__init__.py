"""Judges programs that models write: pass@k, stored verdicts, and calibrated time limits.

Programs run in `lm_eval.sandbox`. Task code calls `pass_at_k`, or `compute` of the object that
`load("code_eval")` of Hugging Face's `evaluate` returns, which is a `CodeEval` here
(`evaluate_module.py`). Both need a `CodeSession`, which an evaluation opens once the user has
confirmed that programs may run.
"""

from lm_eval.code_eval.compute import CodeEval, pass_at_k
from lm_eval.code_eval.estimate import estimate_pass_at_k
from lm_eval.code_eval.session import CodeSession, Job, current_session, programs_not_run

__all__ = [
    "CodeEval",
    "CodeSession",
    "Job",
    "current_session",
    "estimate_pass_at_k",
    "pass_at_k",
    "programs_not_run",
]
