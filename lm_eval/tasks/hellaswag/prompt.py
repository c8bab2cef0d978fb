"""Prompt and choices for HellaSwag, without the markup that WikiHow left in the texts."""

from __future__ import annotations

import re
from typing import Any


def clean(text: str) -> str:
    """Returns `text` without markup in brackets; ` [title]` becomes the end of a sentence."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def question(doc: dict[str, Any]) -> str:
    return clean(f"{doc['activity_label']}: {doc['ctx_a']} {doc['ctx_b'].capitalize()}")


def endings(doc: dict[str, Any]) -> list[str]:
    return [clean(ending) for ending in doc["endings"]]
