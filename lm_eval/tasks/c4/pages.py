"""Prompt text and scoring for C4, with WikiText's detokenization."""

from __future__ import annotations

from typing import Any

from lm_eval.tasks.wikitext.pages import detokenized, perplexity_items


def plain_text(doc: dict[str, Any]) -> str:
    """Returns the page without the spaces that tokenization put around punctuation."""
    return detokenized(doc["text"])


def process_results(doc: dict[str, Any], results: list[float]) -> dict[str, tuple[float, int]]:
    """Returns the items of the perplexity metrics, per word and byte of the original page."""
    return perplexity_items(doc["text"], results[0])
