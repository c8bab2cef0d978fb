"""MATH scored as on the Open LLM Leaderboard v2.

Do not change these rules: scores that were published by them must stay comparable.
"""

from __future__ import annotations

import re
from typing import Any

import lm_eval.helpers.symbolic_answers as minerva
from lm_eval.helpers.latex_answers import last_boxed

minerva.require_math()  # before the model generates anything


def hard_ones(dataset: Any) -> Any:
    """Returns the problems of the highest difficulty, level 5."""
    return dataset.filter(lambda doc: doc["level"] == "Level 5")


def gold_answer(doc: dict[str, Any]) -> str:
    """Returns the whole solution for a few-shot example, else the content of its last box."""
    return str(doc["solution"]) if "few_shot" in doc else last_boxed(doc["solution"]) or ""


def normalize(answer: str) -> str:
    """Normalizes an answer by an older version of `minerva_math`'s rules, which had a mistake.

    Units are removed wherever they occur, even inside LaTeX commands: `ft` inside `left`.
    """
    answer = answer.split("=")[-1]
    for before, after in minerva.SUBSTITUTIONS:
        answer = answer.replace(before, after)
    for part in minerva.REMOVED_EXPRESSIONS:
        answer = answer.replace(part, "")
    for pattern, into in minerva.REGEX_SUBSTITUTIONS:
        if "sqrt" not in pattern.pattern:
            answer = pattern.sub(into, answer)
    answer = re.sub(r"(sqrt)([^{])", r"sqrt{\2}", answer).replace("$", "")
    return answer.replace(",", "") if answer.replace(",", "").isdigit() else answer


def _minerva_match(answer: str, gold: str) -> int:
    """Returns 1 if the final answer of the response equals `gold` by Minerva's rules, else 0."""
    found = minerva.get_unnormalized_answer(answer)
    if found == minerva.NO_ANSWER:
        return 0
    first, second = normalize(found), normalize(gold)
    return int(first.strip() == second.strip() or minerva.symbolically_equal(first, second, 1))


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `exact_match` (by math-verify) and `exact_match_original` (by Minerva's rules)."""
    from math_verify import LatexExtractionConfig, parse, verify

    answer = results[0]
    gold = parse(doc["solution"], extraction_config=[LatexExtractionConfig()])
    return {
        "exact_match": int(verify(gold, parse(answer))),
        "exact_match_original": _minerva_match(answer, gold_answer(doc)),
    }
