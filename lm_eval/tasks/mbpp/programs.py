"""Filter, few-shot examples and the metric of MBPP."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lm_eval.code_eval import pass_at_k

_BLOCK = re.compile(r"```(?:\w+)?\n?(.*?)\n?```", re.DOTALL)


def first_block(answer: str) -> str:
    """Returns the code of the response's first code block, or "" if there is none.

    The prompt may have opened the block already, so that the response only closes it.
    """
    found = _BLOCK.search("```" + answer) or _BLOCK.search(answer.replace("```python", "```"))
    return found[1] if found else ""


def first_blocks(resps: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns the first code block of each response."""
    return [[first_block(answer) for answer in answers] for answers in resps]


def pass_at_1(
    references: str | Sequence[str], predictions: Sequence[str] | Sequence[Sequence[str]]
) -> float:
    """Returns pass@1: the share of programs that pass their tests.

    `references` are the tests of each problem, or those of a single one; `predictions` are the
    program of each problem, or lists of sampled programs.
    """
    tests = [references] if isinstance(references, str) else references
    return pass_at_k(tests, predictions, k=1)["pass@1"]


def examples() -> list[dict[str, Any]]:
    """Returns problems 2, 3 and 4 of MBPP, for datasets that have no few-shot examples."""
    from lm_eval.data import load_splits

    return list(load_splits("google-research-datasets/mbpp", "full")["prompt"])[1:4]
