"""Scoring for AGIEval: multiple choice with several correct choices, and free-text math answers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from lm_eval.helpers.latex_answers import is_equiv, last_boxed


def any_of_several(doc: dict[str, Any], results: list[tuple[float, bool]]) -> dict[str, float]:
    """Returns `acc` and `acc_norm` of a document that may have several correct choices.

    Each is 1.0 if the choice with the highest log-likelihood is one of `doc["gold"]`, else 0.0.
    `acc_norm` divides each log-likelihood by the choice's length in characters first.
    """
    scores = np.array([score for score, _ in results])
    lengths = np.array([len(choice) for choice in doc["choices"]], dtype=float)
    return {
        "acc": float(int(np.argmax(scores)) in doc["gold"]),
        "acc_norm": float(int(np.argmax(scores / lengths)) in doc["gold"]),
    }


def _after_equals(text: str) -> str:
    return text.split("=")[-1].lstrip(" ")


def found_answer(text: str) -> str | None:
    """Returns the final answer in `text`, or None if there is none.

    Looks, in this order, for the last LaTeX box, a formula between dollar signs, the text after
    the last `=`, and the last number.
    """
    if "\\boxed" in text:
        inside = last_boxed(text)
        return None if inside is None else _after_equals(inside)
    formulas = re.findall(r"\$(.*)\$", text)
    if formulas and formulas[-1]:
        return _after_equals(formulas[-1])
    if "=" in text:
        return _after_equals(text).rstrip(".").split("\\n")[0]
    numbers = re.findall(r"(?:\$)?\d+(?:\.\d+)?(?![\w\d])", text)
    return numbers[-1] if numbers else None


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `acc`: 1 if response and reference contain equivalent final answers, else 0."""
    answer, gold = found_answer(results[0]), found_answer(doc["answer"])
    if answer is None or gold is None:
        return {"acc": int(answer is gold)}
    return {"acc": int(is_equiv(answer, gold))}
