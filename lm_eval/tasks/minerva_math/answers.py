"""MATH scored as in the Minerva paper: final answers are normalized and compared by sympy."""

from __future__ import annotations

from typing import Any

from lm_eval.helpers.latex_answers import last_boxed
from lm_eval.helpers.symbolic_answers import (
    get_unnormalized_answer,
    is_symbolically_equiv,
    normalize_final_answer,
    require_math,
)

require_math()  # before the model generates anything


def gold_answer(doc: dict[str, Any]) -> str:
    """Returns the whole solution for a few-shot example, else the normalized final answer."""
    if "few_shot" in doc:
        return str(doc["solution"])
    return normalize_final_answer(last_boxed(doc["solution"]) or "")


def compare(response: str, gold: str, solution: str) -> dict[str, int]:
    """Returns `exact_match` of the final answers, and `math_verify` of response and solution.

    `gold` is the normalized final answer of `solution`.
    """
    _, math_verify = require_math()
    answer = normalize_final_answer(get_unnormalized_answer(response))
    verified = math_verify.verify(
        gold=math_verify.parse(solution), target=math_verify.parse(response)
    )
    return {
        "exact_match": int(is_symbolically_equiv(answer, gold)),
        "math_verify": int(verified),
    }


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `exact_match` and `math_verify` of a response; see `compare`."""
    return compare(results[0], gold_answer(doc), doc["solution"])
