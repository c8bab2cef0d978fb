"""The functions of the published module of this name, for code that imports them.

Importing it runs no program, unlike the published module.
"""

from __future__ import annotations

from typing import Any

from lm_eval.code_eval import CodeEval
from lm_eval.tasks.mbpp.programs import examples, pass_at_1
from lm_eval.tasks.mbpp.programs import first_block as extract_code_blocks
from lm_eval.tasks.mbpp.programs import first_blocks as build_predictions

__all__ = [
    "build_predictions",
    "extract_code_blocks",
    "list_fewshot_samples",
    "pass_at_1",
    "pass_at_k",
]

#: The metric `code_eval`, under the name that the published module gives it.
pass_at_k = CodeEval()


def list_fewshot_samples() -> list[dict[str, Any]]:
    """Returns problems 2, 3 and 4 of MBPP, read from the dataset, as few-shot examples."""
    kept = ("task_id", "text", "code", "test_list")
    return [{**{name: row[name] for name in kept}, "is_fewshot": True} for row in examples()]
