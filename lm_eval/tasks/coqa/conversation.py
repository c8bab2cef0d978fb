"""CoQA: a story, a conversation about it, and the last question to answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm_eval.tasks.squadv2.overlap import exact, f1


def question(doc: dict[str, Any]) -> str:
    asked, answered = doc["questions"]["input_text"], doc["answers"]["input_text"]
    turns = [
        f"Q: {q}\n\nA: {a}\n\n" for q, a in zip(asked, answered[: len(asked) - 1], strict=False)
    ]
    return f"{doc['story']}\n\n{''.join(turns)}Q: {asked[-1]}\n\nA:"


def right_answers(doc: dict[str, Any]) -> list[str]:
    """The answer, and others that people gave, unless they differ in case alone."""
    last = len(doc["questions"]["input_text"]) - 1
    answers = [doc["answers"]["input_text"][last]]
    for other in (doc.get("additional_answers") or {}).values():
        answer = other["input_text"][last]
        if answer.lower() not in (known.lower() for known in answers):
            answers.append(answer)
    return answers


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """With several answers, each is left out in turn, since people are scored that way too."""
    golds, answer = right_answers(doc), results[0].strip().split("\n")[0]
    others = [golds[:n] + golds[n + 1 :] for n in range(len(golds))] if len(golds) > 1 else [golds]

    def score(compare: Callable[[str, str], float]) -> float:
        return sum(max(compare(gold, answer) for gold in some) for some in others) / len(golds)

    return {"em": score(exact), "f1": score(f1)}
