"""Prompt and choices for HellaSwag, without the markup that WikiHow left in the texts.

Contains the functions of the published module of this name.
"""

from __future__ import annotations

import re
from typing import Any


def preprocess(text: str) -> str:
    """Returns `text` without markup in brackets; ` [title]` becomes the end of a sentence."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def question(doc: dict[str, Any]) -> str:
    return preprocess(f"{doc['activity_label']}: {doc['ctx_a']} {doc['ctx_b'].capitalize()}")


def endings(doc: dict[str, Any]) -> list[str]:
    return [preprocess(ending) for ending in doc["endings"]]


def process_docs(dataset: Any) -> Any:
    """Returns the documents with `query`, `choices` and the index of the right one, `gold`."""
    return dataset.map(
        lambda doc: {"query": question(doc), "choices": endings(doc), "gold": int(doc["label"])}
    )
