"""MATH as the leaderboard scored it. Its numbers are history: these rules do not change."""

from __future__ import annotations

import re
from typing import Any

import lm_eval.tasks.minerva_math.answers as minerva
from lm_eval.tasks.hendrycks_math.answers import boxed


def hard_ones(dataset: Any) -> Any:
    return dataset.filter(lambda doc: doc["level"] == "Level 5")


def gold_answer(doc: dict[str, Any]) -> str:
    """Of an example the whole solution, of a question the answer."""
    return str(doc["solution"]) if "few_shot" in doc else boxed(doc["solution"]) or ""


def normalise(answer: str) -> str:
    """Minerva's rules before their repair: words go wherever they occur, even inside commands."""
    answer = answer.split("=")[-1]
    for before, after in minerva.SUBSTITUTED:
        answer = answer.replace(before, after)
    for part in minerva.REMOVED:
        answer = answer.replace(part, "")
    for pattern, into in minerva.REWRITTEN:
        if "sqrt" not in pattern.pattern:
            answer = pattern.sub(into, answer)
    answer = re.sub(r"(sqrt)([^{])", r"sqrt{\2}", answer).replace("$", "")
    return answer.replace(",", "") if answer.replace(",", "").isdigit() else answer


def _as_minerva_did(answer: str, gold: str) -> int:
    said = minerva.final_answer(answer)
    if said == minerva.NO_ANSWER:
        return 0
    first, second = normalise(said), normalise(gold)
    return int(first.strip() == second.strip() or minerva.equal(first, second, patience=1))


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    from math_verify import LatexExtractionConfig, parse, verify

    answer = results[0]
    gold = parse(doc["solution"], extraction_config=[LatexExtractionConfig()])
    return {
        "exact_match": int(verify(gold, parse(answer))),
        "exact_match_original": _as_minerva_did(answer, gold_answer(doc)),
    }
