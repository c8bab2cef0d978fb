"""From what the model writes to programs that can be tested."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)


def completed(resps: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """The function's head, and the body that the model wrote."""
    return [
        [doc["prompt"] + answer for answer in answers]
        for answers, doc in zip(resps, docs, strict=True)
    ]


def completed_instruct(
    resps: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]
) -> list[list[str]]:
    """The same, up to the end of the code block."""
    return completed([[answer.split("```")[0] for answer in answers] for answers in resps], docs)


def pass_at_k(
    references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int]
) -> dict[str, float]:
    """Not a number, until programs can be run in a box of their own."""
    say_not_run()
    return {f"pass@{count}": float("nan") for count in k}


@functools.cache
def say_not_run() -> None:
    logger.warning(
        "The programs that the model wrote are not run by this version, which has no safe place "
        "for it yet: pass@k is not a number. With --log_samples they are kept, ready to be tested."
    )
