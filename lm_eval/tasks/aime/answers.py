"""AIME's answers: the last box, or what stands between dollar signs, or all of it."""

from __future__ import annotations

from typing import Any

from lm_eval.tasks.hendrycks_math.answers import boxed, same


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    answer = results[0]
    inside = boxed(answer)
    if inside is not None:
        answer = inside
    elif answer.count("$") > 1:
        answer = answer[answer.index("$") + 1 : answer.rindex("$")]
    gold = next(value for column, value in doc.items() if column.lower() == "answer")
    return {"exact_match": int(same(answer, str(gold)))}
