"""T5's version of ReCoRD: the model generates the entity; each correct answer is one document.

Targets have the form `<passage+query>_<entity>`, so that the documents of one query can be grouped.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from lm_eval.helpers.squad import normalize_answer

Answer = tuple[str, str]


def question(doc: dict[str, Any]) -> str:
    """Returns the prompt: query, entities and passage, with the highlights as sentences."""
    passage = re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", doc["passage"])
    passage = passage.replace("\n@highlight\n", ". ")
    entities = ", ".join(doc["entities"])
    return f"record query: {doc['query']} entities: {entities} passage: {passage}"


def one_answer_each(dataset: Any) -> Any:
    """Returns one document per correct answer; its `answers` is that answer."""
    return dataset.from_list(
        [{**doc, "answers": answer} for doc in dataset for answer in doc["answers"]]
    )


def em(predictions: Sequence[str], references: Sequence[str]) -> Answer:
    """Returns the response and the target, for `agg_em`."""
    return predictions[0], references[0]


def f1(predictions: Sequence[str], references: Sequence[str]) -> Answer:
    """Returns the response and the target, for `agg_f1`."""
    return predictions[0], references[0]


def _by_query(items: Sequence[Answer]) -> dict[str, tuple[list[str], list[str]]]:
    """Returns the normalized responses and the normalized correct answers of each query."""
    found: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for answer, reference in items:
        query, gold = reference.split("_")
        found[query][0].append(normalize_answer(answer))
        found[query][1].append(normalize_answer(gold))
    return found


def agg_em(items: Sequence[Answer]) -> float:
    """Returns the share of responses that equal one of their query's correct answers."""
    scores = [answer in golds for answers, golds in _by_query(items).values() for answer in answers]
    return sum(scores) / len(scores)


def _word_f1(answer: str, gold: str) -> float:
    """Returns the F1 of the words of two normalized texts."""
    given, expected = answer.split(), gold.split()
    shared = (Counter(given) & Counter(expected)).total()
    return 2 * shared / (len(given) + len(expected)) if shared else 0.0


def agg_f1(items: Sequence[Answer]) -> float:
    """Returns the mean F1 per query against the most similar correct answer.

    Documents of one query have the same prompt, so only the first response of a query is scored.
    """
    scores = [
        max(_word_f1(answers[0], gold) for gold in golds)
        for answers, golds in _by_query(items).values()
    ]
    return sum(scores) / len(scores)
