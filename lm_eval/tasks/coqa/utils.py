"""Prompt and scoring for CoQA: answer the last question of a conversation about a story.

Contains the functions of the published module of this name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

from lm_eval.helpers.squad import compute_exact, compute_f1


def doc_to_text(doc: dict[str, Any]) -> str:
    """Returns the prompt: story, earlier questions with their answers, last question."""
    questions, answers = doc["questions"]["input_text"], doc["answers"]["input_text"]
    turns = [
        f"Q: {question}\n\nA:" + (f" {answer}\n\n" if answer is not None else "")
        for question, answer in zip_longest(questions, answers[:-1])
    ]
    return f"{doc['story']}\n\n{''.join(turns)}"


def doc_to_target(doc: dict[str, Any]) -> list[str]:
    """Returns the different reference answers to the last question, ignoring case."""
    last = len(doc["questions"]["input_text"]) - 1
    answers = [doc["answers"]["input_text"][last]]
    for other in (doc.get("additional_answers") or {}).values():
        answer = other["input_text"][last]
        if answer.lower() not in (known.lower() for known in answers):
            answers.append(answer)
    return answers


def _leaving_one_out(
    compare: Callable[[str, str], float], golds: Sequence[str], answer: str
) -> float:
    """Returns the best match of an answer with several reference answers.

    It is the mean over leaving one of them out in turn: human answers are scored the same way,
    against the others.
    """
    others = [[*golds[:n], *golds[n + 1 :]] for n in range(len(golds))]
    if len(golds) == 1:
        others = [list(golds)]
    return sum(max(compare(gold, answer) for gold in some) for some in others) / len(golds)


def em(gold_list: Sequence[str], pred: str) -> float:
    """Returns the exact match of an answer with several reference answers."""
    return _leaving_one_out(compute_exact, gold_list, pred)


def compute_scores(gold_list: Sequence[str], pred: str) -> dict[str, float]:
    """Returns `em` and `f1` of an answer with several reference answers."""
    return {
        "em": em(gold_list, pred),
        "f1": _leaving_one_out(compute_f1, gold_list, pred),
    }


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns `em` and `f1` of the response's first line."""
    return compute_scores(doc_to_target(doc), results[0].strip().split("\n")[0])
