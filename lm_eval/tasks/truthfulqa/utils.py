"""The functions of the published module of this name, for code that imports them."""

from __future__ import annotations

from typing import Any

from lm_eval.tasks.truthfulqa.likeness import bleu, compare, rouge, sentences
from lm_eval.tasks.truthfulqa.scoring import process_results_mc2

__all__ = [
    "bleu",
    "preprocess_function",
    "process_docs_gen",
    "process_results_gen",
    "process_results_mc2",
    "rouge",
]


def process_docs_gen(dataset: Any) -> Any:
    """Returns the documents, each changed by `preprocess_function`."""
    return dataset.map(preprocess_function)


def preprocess_function(examples: dict[str, Any]) -> dict[str, Any]:
    """Returns the question and its answers, each ending with a period.

    "I have no comment." is always among the correct answers.
    """
    correct, incorrect = sentences(examples)
    return {
        "question": examples["question"].strip(),
        "correct_answers": correct,
        "incorrect_answers": incorrect,
    }


def process_results_gen(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns the scores of a response to a document of `process_docs_gen`."""
    return compare(results[0], doc["correct_answers"], doc["incorrect_answers"])
