"""A RACE exercise: an article, its questions with their answers, and the last one to answer.

The data set keeps the questions of an article as the text of a Python list.
"""

from __future__ import annotations

import ast
from typing import Any


def _problems(doc: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = ast.literal_eval(doc["problems"])
    return found


def _gold(problem: dict[str, Any]) -> int:
    return "ABCD".index(problem["answer"])


def question(doc: dict[str, Any]) -> str:
    *answered, last = _problems(doc)
    return f"Article: {doc['article']}\n\n{''.join(map(_answered, answered))}{last['question']}"


def _answered(problem: dict[str, Any]) -> str:
    answer = problem["options"][_gold(problem)]
    if problem["question"].endswith("  _  ."):  # a gap at the end, to be filled
        return f"{problem['question'][:-5]}{answer}\n"
    return f"Question: {problem['question']}\nAnswer: {answer}\n"


def options(doc: dict[str, Any]) -> list[str]:
    return list(_problems(doc)[-1]["options"][:4])


def gold(doc: dict[str, Any]) -> int:
    return _gold(_problems(doc)[-1])
