"""Scoring for MATH: finds the final answer of a solution and compares two answers as text."""

from __future__ import annotations

import contextlib
import re
from typing import Any

#: Replacements for spelling differences that do not change the meaning, applied in this order.
_REPLACED = (
    ("\n", ""),
    ("\\!", ""),
    ("\\\\", "\\"),
    ("tfrac", "frac"),
    ("dfrac", "frac"),
    ("\\left", ""),
    ("\\right", ""),
    ("^{\\circ}", ""),
    ("^\\circ", ""),
    ("\\$", ""),
)
_UNIT = "\\text{ "
_FRACTION = re.compile(r"\\frac([^{])([^{]|(?=\{))")
_ROOT = re.compile(r"\\sqrt([^{])")
_RATIO = re.compile(r"(-?(?:0|[1-9]\d*))/(-?(?:0|[1-9]\d*))")


def last_boxed(solution: str) -> str | None:
    """Returns the content of the last LaTeX box (`boxed` or `fbox`) of a solution.

    None if there is no box, or if its braces are not balanced.
    """
    if "\\boxed " in solution:
        return solution.split("\\boxed ")[-1].split("$")[0]
    start = max(solution.rfind("\\boxed"), -1)
    if start < 0:
        start = solution.rfind("\\fbox")
    if start < 0:
        return None
    depth = 0
    for place in range(start, len(solution)):
        depth += {"{": 1, "}": -1}.get(solution[place], 0)
        if depth == 0 and solution[place] == "}":
            return solution[solution.index("{", start) + 1 : place]
    return None


def normalize(text: str) -> str:
    """Returns one spelling for LaTeX answers that mean the same, by the rules of the MATH paper.

    Raises ValueError if `text` has more than one unit.
    """
    for before, after in _REPLACED:
        text = text.replace(before, after)
    if _UNIT in text:
        text, *units = text.split(_UNIT)
        if len(units) > 1:
            raise ValueError("The answer has more than one unit.")
    text = text.replace("\\%", "").replace(" .", " 0.").replace("{.", "{0.")
    if not text:
        return text
    if text.startswith("."):
        text = "0" + text
    sides = text.split("=")
    if len(sides) == 2 and len(sides[0]) <= 2:  # "x = 5"
        text = sides[1]
    text = _ROOT.sub(r"\\sqrt{\1}", text).replace(" ", "")
    text = _FRACTION.sub(lambda m: f"\\frac{{{m[1]}}}" + (f"{{{m[2]}}}" if m[2] else ""), text)
    if text == "0.5":
        text = "\\frac{1}{2}"
    ratio = _RATIO.fullmatch(text)
    return f"\\frac{{{ratio[1]}}}{{{ratio[2]}}}" if ratio else text


def equivalent(first: str, second: str | None) -> bool:
    """Returns whether two LaTeX answers are equal when normalized; False if `second` is None."""
    if second is None:
        return False
    with contextlib.suppress(ValueError):
        return normalize(first) == normalize(second)
    return first == second


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
    return {"exact_match": int(equivalent(answer, last_boxed(doc["solution"])))}
