"""The functions of the published module of this name, for code that imports them."""

from __future__ import annotations

from typing import Any

from lm_eval.helpers.drop import drop_metrics as get_metrics
from lm_eval.tasks.drop.answers import accepted as get_answers
from lm_eval.tasks.drop.answers import best_match
from lm_eval.tasks.drop.answers import spans as parse_answer

__all__ = ["get_answers", "get_metrics", "parse_answer", "process_docs", "process_results"]


def process_docs(dataset: Any) -> Any:
    """Returns the documents with `id`, `passage`, `question` and all accepted `answers`."""

    def processed(doc: dict[str, Any]) -> dict[str, Any]:
        kept = {"id": doc["query_id"], "passage": doc["passage"], "question": doc["question"]}
        return {**kept, "answers": get_answers(doc)}

    return dataset.map(processed)


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns `em` and `f1` of a response to a document of `process_docs`."""
    return best_match(results, doc["answers"])
