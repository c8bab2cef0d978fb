"""T5's way with ReCoRD: write the entity; a document for every right answer.

Gold answers come as `passage+query_entity`, so that answers to one query are known.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any

from lm_eval.tasks.squadv2.overlap import normalise

Answer = tuple[str, str]


def question(doc: dict[str, Any]) -> str:
    """Highlights become sentences of the passage."""
    passage = re.sub(r"([.?!\"'])\n@highlight\n", r"\1 ", doc["passage"])
    passage = passage.replace("\n@highlight\n", ". ")
    entities = ", ".join(doc["entities"])
    return f"record query: {doc['query']} entities: {entities} passage: {passage}"


def one_answer_each(dataset: Any) -> Any:
    return dataset.from_list(
        [{**doc, "answers": answer} for doc in dataset for answer in doc["answers"]]
    )


def em(predictions: Sequence[str], references: Sequence[str]) -> Answer:
    return predictions[0], references[0]


def f1(predictions: Sequence[str], references: Sequence[str]) -> Answer:
    return predictions[0], references[0]


def _by_query(items: Sequence[Answer]) -> dict[str, tuple[list[str], list[str]]]:
    found: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for answer, reference in items:
        query, gold = reference.split("_")
        found[query][0].append(normalise(answer))
        found[query][1].append(normalise(gold))
    return found


def agg_em(items: Sequence[Answer]) -> float:
    scores = [answer in golds for answers, golds in _by_query(items).values() for answer in answers]
    return sum(scores) / len(scores)


def _shared_words(answer: str, gold: str) -> float:
    given, expected = answer.split(), gold.split()
    shared = (Counter(given) & Counter(expected)).total()
    return 2 * shared / (len(given) + len(expected)) if shared else 0.0


def agg_f1(items: Sequence[Answer]) -> float:
    """Of a query's answers, which are the same, the first; of its right ones, the nearest."""
    scores = [
        max(_shared_words(answers[0], gold) for gold in golds)
        for answers, golds in _by_query(items).values()
    ]
    return sum(scores) / len(scores)
