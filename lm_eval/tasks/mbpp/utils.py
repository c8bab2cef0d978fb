"""The functions of the published module of this name, for code that imports them.

Importing it runs no program, unlike the published module. There is no sandbox yet, so `pass_at_1`
raises an error.
"""

from __future__ import annotations

from typing import Any

from lm_eval.tasks.humaneval.utils import no_sandbox
from lm_eval.tasks.mbpp.programs import examples
from lm_eval.tasks.mbpp.programs import first_block as extract_code_blocks
from lm_eval.tasks.mbpp.programs import first_blocks as build_predictions

__all__ = ["build_predictions", "extract_code_blocks", "list_fewshot_samples", "pass_at_1"]


def pass_at_1(references: str | list[str], predictions: str | list[list[str]]) -> float:
    """Raises `ConfigError`: this version has no sandbox to run programs in."""
    raise no_sandbox("lm_eval.tasks.mbpp.utils.pass_at_1")


def list_fewshot_samples() -> list[dict[str, Any]]:
    """Returns problems 2, 3 and 4 of MBPP, read from the dataset, as few-shot examples."""
    kept = ("task_id", "text", "code", "test_list")
    return [{**{name: row[name] for name in kept}, "is_fewshot": True} for row in examples()]
