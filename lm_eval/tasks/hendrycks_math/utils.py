"""Scoring for MATH: compares the final answers of response and solution as text.

Contains the functions of the published module of this name.
"""

from __future__ import annotations

from typing import Any

from lm_eval.helpers.latex_answers import (
    fix_a_slash_b,
    fix_fracs,
    fix_sqrt,
    is_equiv,
    last_boxed,
    last_boxed_only_string,
    remove_boxed,
    remove_right_units,
    strip_string,
)

__all__ = [
    "fix_a_slash_b",
    "fix_fracs",
    "fix_sqrt",
    "gold_answer",
    "is_equiv",
    "last_boxed_only_string",
    "process_docs",
    "process_results",
    "remove_boxed",
    "remove_right_units",
    "strip_string",
]


def process_docs(dataset: Any) -> Any:
    """Returns the documents with `problem`, `solution` and the `answer` in the solution's box."""

    def processed(doc: dict[str, Any]) -> dict[str, Any]:
        kept = {"problem": doc["problem"], "solution": doc["solution"]}
        return {**kept, "answer": gold_answer(doc)}

    return dataset.map(processed)


def gold_answer(doc: dict[str, Any]) -> str:
    """Returns the content of the last box of the reference solution, or ""."""
    return last_boxed(doc["solution"]) or ""


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `exact_match`: 1 if the response's answer is equivalent to the solution's, else 0.

    The answer is the text between the first and the last dollar sign, or else the whole response.
    """
    answer = results[0]
    if answer.count("$") > 1:
        answer = answer[answer.index("$") + 1 : answer.rindex("$")]
    return {"exact_match": int(is_equiv(answer, last_boxed(doc["solution"])))}
