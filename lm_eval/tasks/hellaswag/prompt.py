"""HellaSwag's wording, without the marks that WikiHow left in its texts."""

from __future__ import annotations

import re
from typing import Any


def clean(text: str) -> str:
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")


def question(doc: dict[str, Any]) -> str:
    return clean(f"{doc['activity_label']}: {doc['ctx_a']} {doc['ctx_b'].capitalize()}")


def endings(doc: dict[str, Any]) -> list[str]:
    return [clean(ending) for ending in doc["endings"]]
