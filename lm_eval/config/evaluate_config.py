"""Re-exports `EvaluatorConfig`, which scripts import from here; imported on first use."""

from __future__ import annotations

from lm_eval._lazy import lazy_exports

__getattr__, __dir__ = lazy_exports(__name__, {"EvaluatorConfig": "lm_eval.evaluator_config"})
