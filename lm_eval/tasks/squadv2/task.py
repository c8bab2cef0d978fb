"""SQuAD 2.0: answer a question from a passage, or tell that the passage does not answer it.

The task is a Python class, because each document has two requests of different kinds: one
generates an answer, the other scores the continuation "unanswerable".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.helpers.squad import compute_exact, compute_f1
from lm_eval.tasks.configurable import ConfigurableTask

UNANSWERABLE = "unanswerable"
#: (score, whether the question has an answer, whether the model wrote one, P("unanswerable"))
Scored = tuple[float, bool, bool, float]


class SQuAD2(ConfigurableTask):
    """The task `squadv2`: exact match and F1, over all, answerable and unanswerable questions."""

    VERSION = 3
    DATASET_PATH = "lighteval/squad_v2"

    def __init__(self, config: dict[str, Any] | None = None) -> None:
        super().__init__(config={"metadata": {"version": self.VERSION}, **(config or {})})

    def has_training_docs(self) -> bool:
        return True

    def has_validation_docs(self) -> bool:
        return True

    def has_test_docs(self) -> bool:
        return False

    def training_docs(self) -> Any:
        return self.dataset["train"]

    def validation_docs(self) -> Any:
        return self.dataset["validation"]

    def should_decontaminate(self) -> bool:
        return True

    def doc_to_decontamination_query(self, doc: dict[str, Any]) -> Any:
        return doc["context"]

    def doc_to_text(self, doc: dict[str, Any], doc_to_text: Any = None) -> str:
        return (
            f"Title: {doc['title']}\n\nBackground: {doc['context']}\n\n"
            f"Question: {doc['question']}\n\nAnswer:"
        )

    def doc_to_target(self, doc: dict[str, Any], doc_to_target: Any = None) -> str:
        return " " + next(iter(doc["answers"]["text"]), UNANSWERABLE)

    def construct_requests(self, doc: Any, ctx: Any, **kwargs: Any) -> list[Instance]:
        for name in ("chat_template", "apply_chat_template"):
            kwargs.pop(name, None)
        return [
            Instance("generate_until", doc, (ctx, {"until": ["\n"]}), 0, **kwargs),
            Instance("loglikelihood", doc, (ctx, f" {UNANSWERABLE}"), 0, **kwargs),
        ]

    def process_results(self, doc: dict[str, Any], results: Any) -> dict[str, Scored]:
        """Returns a `Scored` tuple per metric; aggregations select their documents by it."""
        answer, (score, _) = results
        golds = [text for text in doc["answers"]["text"] if text] or [""]
        found: dict[str, Scored] = {}
        for name, compare in (("exact", compute_exact), ("f1", compute_f1)):
            value: float = max(compare(gold, answer) for gold in golds)
            has_answer = bool(doc["answers"]["text"])
            scored = (value, has_answer, bool(answer), math.exp(score))
            found |= {key.format(name): scored for key in _AGGREGATIONS}
        return found

    def aggregation(self) -> dict[str, Callable[[Sequence[Scored]], float]]:
        return {
            key.format(name): function
            for key, function in _AGGREGATIONS.items()
            for name in ("exact", "f1")
        }

    def higher_is_better(self) -> dict[str, bool]:
        return dict.fromkeys(self.aggregation(), True)


def _percent(scores: Sequence[float]) -> float:
    return 100 * sum(scores) / len(scores) if scores else 0.0


def _all(items: Sequence[Scored]) -> float:
    """Returns the mean score of all documents in percent."""
    return _percent([score for score, *_ in items])


def _answerable(items: Sequence[Scored]) -> float:
    """Returns the mean score of the questions that have an answer, in percent."""
    return _percent([score for score, has_answer, *_ in items if has_answer])


def _unanswerable(items: Sequence[Scored]) -> float:
    """Returns the mean score of the questions without an answer, in percent."""
    return _percent([score for score, has_answer, *_ in items if not has_answer])


def _best(items: Sequence[Scored]) -> float:
    """Returns the score in percent with the best threshold for abstaining.

    The model abstains if its probability of "unanswerable" is above the threshold.
    """
    current = best = float(sum(1 for _, has_answer, *_ in items if not has_answer))
    for score, has_answer, wrote_answer, _ in sorted(items, key=lambda item: item[3]):
        current += score if has_answer else -float(wrote_answer)
        best = max(best, current)
    return 100 * best / len(items)


_AGGREGATIONS: dict[str, Callable[[Sequence[Scored]], float]] = {
    "{}": _all,
    "HasAns_{}": _answerable,
    "NoAns_{}": _unanswerable,
    "best_{}": _best,
}
