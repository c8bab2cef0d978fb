"""Prepares PAWS-X's sentence pairs, so that each can be joined into one sentence."""

from __future__ import annotations

from typing import Any

from lm_eval.utils import general_detokenize


def _repair(doc: dict[str, Any]) -> dict[str, Any]:
    """Detokenizes both sentences; the first loses its final mark, the second its capital."""
    first, second = (general_detokenize(doc[key]).strip() for key in ("sentence1", "sentence2"))
    if first.endswith((".", ",", ";")):
        first = first[:-1]
    return {**doc, "sentence1": first, "sentence2": second[0].lower() + second[1:]}


def repaired(dataset: Any) -> Any:
    """Returns the documents with both sentences prepared, without pairs with an empty sentence."""
    return dataset.filter(lambda doc: doc["sentence1"] and doc["sentence2"]).map(_repair)
