"""Prompt and choices for RACE: answer the last question about an article.

The dataset has the questions of an article as the text of a Python list.
"""

from __future__ import annotations

import ast
from typing import Any


def _problems(doc: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the article's questions; each has `question`, `options` and `answer` (A to D)."""
    found: list[dict[str, Any]] = ast.literal_eval(doc["problems"])
    return found


def _gold(problem: dict[str, Any]) -> int:
    return "ABCD".index(problem["answer"])


def question(doc: dict[str, Any]) -> str:
    """Returns the prompt: article, earlier questions with their answers, last question."""
    *answered, last = _problems(doc)
    return f"Article: {doc['article']}\n\n{''.join(map(_answered, answered))}{last['question']}"


def _answered(problem: dict[str, Any]) -> str:
    """Returns a question with its correct answer."""
    answer = problem["options"][_gold(problem)]
    if problem["question"].endswith("  _  ."):  # the answer fills a gap at the end
        return f"{problem['question'][:-5]}{answer}\n"
    return f"Question: {problem['question']}\nAnswer: {answer}\n"


def options(doc: dict[str, Any]) -> list[str]:
    """Returns the four answers to the last question."""
    return list(_problems(doc)[-1]["options"][:4])


def gold(doc: dict[str, Any]) -> int:
    """Returns the index of the correct answer to the last question."""
    return _gold(_problems(doc)[-1])
