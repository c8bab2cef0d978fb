"""Scoring for AIME: compares the final answer of a response with the gold answer."""

from __future__ import annotations

from typing import Any

from lm_eval.helpers.latex_answers import is_equiv, last_boxed


def final_answer(response: str) -> str:
    """Returns the final answer of a response, which is what `maj@k` votes on.

    The final answer is the content of the last LaTeX box; without a box, the text between the first
    and the last dollar sign; otherwise the whole response.
    """
    inside = last_boxed(response)
    if inside is not None:
        return inside
    if response.count("$") > 1:
        return response[response.index("$") + 1 : response.rindex("$")]
    return response


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `exact_match`: 1 if the response's final answer is equivalent to the gold answer.

    See `final_answer`.
    """
    answer = final_answer(results[0])
    gold = next(value for column, value in doc.items() if column.lower() == "answer")
    return {"exact_match": int(is_equiv(answer, str(gold)))}
