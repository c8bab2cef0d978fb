"""Filters for HumanEval that turn responses into programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.code_eval import pass_at_k

__all__ = ["completed", "completed_instruct", "pass_at_k"]


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
