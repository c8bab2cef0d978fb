"""Filters for HumanEval that turn responses into programs, and a placeholder for pass@k."""

from __future__ import annotations

import functools
import logging
from collections.abc import Sequence
from typing import Any

logger = logging.getLogger(__name__)


def completed(resps: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]) -> list[list[str]]:
    """Returns each response as a program: the prompt's function header and the generated body."""
    return [
        [doc["prompt"] + answer for answer in answers]
        for answers, doc in zip(resps, docs, strict=True)
    ]


def completed_instruct(
    resps: Sequence[Sequence[str]], docs: Sequence[dict[str, Any]]
) -> list[list[str]]:
    """Like `completed`, but drops everything from the end of the response's code block on."""
    return completed([[answer.split("```")[0] for answer in answers] for answers in resps], docs)


def pass_at_k(
    references: Sequence[str], predictions: Sequence[Sequence[str]], k: Sequence[int]
) -> dict[str, float]:
    """Returns NaN for each `pass@k` and logs a warning: there is no sandbox for programs yet."""
    warn_programs_not_run()
    return {f"pass@{count}": float("nan") for count in k}


@functools.cache
def warn_programs_not_run() -> None:
    """Logs, once per process, that generated programs are not run."""
    logger.warning(
        "The score pass@k is NaN: this version has no sandbox and does not run the programs that "
        "the model wrote. Pass --log_samples to save them, and test them with another tool."
    )
