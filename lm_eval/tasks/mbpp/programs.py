"""From what the model writes to programs that can be tested, and the examples of MBPP."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from lm_eval.tasks.humaneval.programs import say_not_run

_BLOCK = re.compile(r"```(?:\w+)?\n?(.*?)\n?```", re.DOTALL)


def _first_block(answer: str) -> str:
    """The prompt opened a block, which the answer closes; or else it has one of its own."""
    found = _BLOCK.search("```" + answer) or _BLOCK.search(answer.replace("```python", "```"))
    return found[1] if found else ""


def first_blocks(resps: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
    return [[_first_block(answer) for answer in answers] for answers in resps]


def pass_at_1(references: Sequence[str], predictions: Sequence[Any]) -> float:
    """Not a number, until programs can be run in a box of their own."""
    say_not_run()
    return float("nan")


def examples() -> list[dict[str, Any]]:
    """Problems 2, 3 and 4, for sets that have no examples of their own."""
    from lm_eval.data import load_splits

    return list(load_splits("google-research-datasets/mbpp", "full")["prompt"])[1:4]
