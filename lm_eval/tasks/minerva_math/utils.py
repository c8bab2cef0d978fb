"""The functions of the published module of this name, for code that imports them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lm_eval.config.yaml_file import parse_yaml
from lm_eval.helpers.latex_answers import last_boxed_only_string, remove_boxed
from lm_eval.helpers.symbolic_answers import (
    REMOVED_EXPRESSIONS,
    SUBSTITUTIONS,
    get_unnormalized_answer,
    normalize_final_answer,
)
from lm_eval.helpers.symbolic_answers import is_symbolically_equiv as is_equiv
from lm_eval.helpers.symbolic_answers import time_limit as timeout

__all__ = [
    "REMOVED_EXPRESSIONS",
    "SUBSTITUTIONS",
    "doc_to_text",
    "get_unnormalized_answer",
    "is_equiv",
    "last_boxed_only_string",
    "list_fewshot_samples",
    "normalize_final_answer",
    "process_docs",
    "process_results",
    "remove_boxed",
    "timeout",
]


def doc_to_text(doc: dict[str, Any]) -> str:
    """Returns the prompt of a document."""
    return f"Problem:\n{doc['problem']}\n\nSolution:"


def process_docs(dataset: Any) -> Any:
    """Returns the documents with `problem`, `solution` and the normalized final `answer`."""

    def processed(doc: dict[str, Any]) -> dict[str, Any]:
        box = last_boxed_only_string(doc["solution"]) or ""
        kept = {"problem": doc["problem"], "solution": doc["solution"]}
        return {**kept, "answer": normalize_final_answer(remove_boxed(box))}

    return dataset.map(processed)


def list_fewshot_samples() -> list[dict[str, Any]]:
    """Returns the four few-shot examples of the Minerva paper."""
    values, _ = parse_yaml(Path(__file__).with_name("minerva_math_algebra.yaml"))
    return [dict(sample) for sample in values["fewshot_config"]["samples"]]


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, int]:
    """Returns `exact_match` and `math_verify` of a response to a document of `process_docs`."""
    from lm_eval.tasks.minerva_math.answers import compare

    return compare(results[0], doc["answer"], doc["solution"])
