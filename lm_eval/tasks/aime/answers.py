"""Scoring for AIME: compares the final answer of a response with the gold answer."""

from __future__ import annotations

from typing import Any

from lm_eval.helpers.latex_answers import is_equiv, last_boxed


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `exact_match`: 1 if the response's final answer is equivalent to the gold answer.

    The final answer is the content of the last LaTeX box; without a box, the text between the first
    and the last dollar sign; otherwise the whole response.
    """
    answer = results[0]
    inside = last_boxed(answer)
    if inside is not None:
        answer = inside
    elif answer.count("$") > 1:
        answer = answer[answer.index("$") + 1 : answer.rindex("$")]
    gold = next(value for column, value in doc.items() if column.lower() == "answer")
    return {"exact_match": int(is_equiv(answer, str(gold)))}
