"""Find the answer in a MATH solution, and compare two of them as text."""

from __future__ import annotations

import contextlib
import re
from typing import Any

#: Spellings that do not matter, in the order of repair.
_SAME = (
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


def boxed(solution: str) -> str | None:
    """What stands in the last box of a solution."""
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


def normalise(text: str) -> str:
    """One spelling for answers that mean the same. ValueError where units make no sense."""
    for before, after in _SAME:
        text = text.replace(before, after)
    if _UNIT in text:
        text, *units = text.split(_UNIT)
        if len(units) > 1:
            raise ValueError("more than one unit")
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


def same(first: str, second: str | None) -> bool:
    if second is None:
        return False
    with contextlib.suppress(ValueError):
        return normalise(first) == normalise(second)
    return first == second


def gold_answer(doc: dict[str, Any]) -> str:
    return boxed(doc["solution"]) or ""


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """The answer is what stands between the first and the last dollar sign, or else all of it."""
    answer = results[0]
    if answer.count("$") > 1:
        answer = answer[answer.index("$") + 1 : answer.rindex("$")]
    return {"exact_match": int(same(answer, boxed(doc["solution"])))}
