"""C4's pages, repaired as WikiText's are."""

from __future__ import annotations

from typing import Any

from lm_eval.tasks.wikitext.pages import joined, per_word_and_byte


def plain_text(doc: dict[str, Any]) -> str:
    return joined(doc["text"])


def process_results(doc: dict[str, Any], results: list[float]) -> dict[str, tuple[float, int]]:
    return per_word_and_byte(doc["text"], results[0])
