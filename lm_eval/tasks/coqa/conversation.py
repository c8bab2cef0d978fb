"""Prompt and scoring for CoQA: answer the last question of a conversation about a story."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.tasks.squadv2.overlap import exact, f1


def question(doc: dict[str, Any]) -> str:
    """Returns the prompt: story, earlier questions with their answers, last question."""
    questions, answers = doc["questions"]["input_text"], doc["answers"]["input_text"]
    turns = [
        f"Q: {q}\n\nA: {a}\n\n"
        for q, a in zip(questions, answers[: len(questions) - 1], strict=False)
    ]
    return f"{doc['story']}\n\n{''.join(turns)}Q: {questions[-1]}\n\nA:"


def right_answers(doc: dict[str, Any]) -> list[str]:
    """Returns the different reference answers to the last question, ignoring case."""
    last = len(doc["questions"]["input_text"]) - 1
    answers = [doc["answers"]["input_text"][last]]
    for other in (doc.get("additional_answers") or {}).values():
        answer = other["input_text"][last]
        if answer.lower() not in (known.lower() for known in answers):
            answers.append(answer)
    return answers


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns `em` and `f1` of the response's first line.

    With several reference answers, the score is the mean over leaving one of them out in turn, and
    each time the best match counts. Human answers are scored the same way, against the others.
    """
    golds, answer = right_answers(doc), results[0].strip().split("\n")[0]
    others = [golds[:n] + golds[n + 1 :] for n in range(len(golds))] if len(golds) > 1 else [golds]

    def score(compare: Callable[[str, str], float]) -> float:
        return sum(max(compare(gold, answer) for gold in some) for some in others) / len(golds)

    return {"em": score(exact), "f1": score(f1)}
