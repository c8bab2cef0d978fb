"""Runs programs that a model wrote, in processes that they cannot leave, and tests them.

Names are imported on first use: the processes of programs import parts of this package, and should
contain as little else as possible.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lm_eval._lazy import lazy_exports

if TYPE_CHECKING:
    from lm_eval.sandbox.judging import calibrate as calibrate
    from lm_eval.sandbox.judging import run as run
    from lm_eval.sandbox.probe import isolation as isolation
    from lm_eval.sandbox.probe import require_isolation as require_isolation
    from lm_eval.sandbox.types import LIMITS_ONLY as LIMITS_ONLY
    from lm_eval.sandbox.types import MECHANISMS as MECHANISMS
    from lm_eval.sandbox.types import OUTCOMES as OUTCOMES
    from lm_eval.sandbox.types import RUNNER_VERSION as RUNNER_VERSION
    from lm_eval.sandbox.types import Isolation as Isolation
    from lm_eval.sandbox.types import IsolationError as IsolationError
    from lm_eval.sandbox.types import Limits as Limits
    from lm_eval.sandbox.types import Verdict as Verdict
    from lm_eval.sandbox.types import mechanisms_of as mechanisms_of

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "LIMITS_ONLY": "lm_eval.sandbox.types",
        "MECHANISMS": "lm_eval.sandbox.types",
        "OUTCOMES": "lm_eval.sandbox.types",
        "RUNNER_VERSION": "lm_eval.sandbox.types",
        "Isolation": "lm_eval.sandbox.types",
        "IsolationError": "lm_eval.sandbox.types",
        "Limits": "lm_eval.sandbox.types",
        "Verdict": "lm_eval.sandbox.types",
        "calibrate": "lm_eval.sandbox.judging",
        "isolation": "lm_eval.sandbox.probe",
        "mechanisms_of": "lm_eval.sandbox.types",
        "require_isolation": "lm_eval.sandbox.probe",
        "run": "lm_eval.sandbox.judging",
    },
)
__all__ = [
    "LIMITS_ONLY",
    "MECHANISMS",
    "OUTCOMES",
    "RUNNER_VERSION",
    "Isolation",
    "IsolationError",
    "Limits",
    "Verdict",
    "calibrate",
    "isolation",
    "mechanisms_of",
    "require_isolation",
    "run",
]
