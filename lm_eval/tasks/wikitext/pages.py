"""Prompt text and scoring for WikiText: undoes the tokenization of the corpus."""

from __future__ import annotations

import re
from typing import Any

#: Replacements that undo the tokenization, applied in this order; `_BRACKETS` and `_LATE` follow.
_EARLY = (
    ("s '", "s'"),
    *((f" @{mark}@ ", mark) for mark in "-,."),
    *((f" {mark} ", f"{mark} ") for mark in ":;.!?,"),
)
_BRACKETS = tuple(
    (re.compile(rf"{re.escape(start)}\s*([^{re.escape(end)}]*?)\s*{re.escape(end)}"), start, end)
    for start, end in ("()", "[]", "{}", '""', "''")
)
_LATE = (
    ("= = = =", "===="),
    ("= = =", "==="),
    ("= =", "=="),
    (" ° ", "°"),
    (" \n", "\n"),
    ("\n ", "\n"),
    (" N ", " 1 "),
    (" 's", "'s"),
)


def detokenized(text: str) -> str:
    """Returns `text` without the spaces and `@` marks that WikiText's tokenization added."""
    for apart, together in _EARLY:
        text = text.replace(apart, together)
    for inside, start, end in _BRACKETS:
        text = inside.sub(rf"{start}\1{end}", text)
    for apart, together in _LATE:
        text = text.replace(apart, together)
    return text


def perplexity_items(text: str, loglikelihood: float) -> dict[str, tuple[float, int]]:
    """Returns (log-likelihood, number of words or bytes of `text`) for each perplexity metric."""
    words, size = len(re.split(r"\s+", text)), len(text.encode())
    return {
        "word_perplexity": (loglikelihood, words),
        "byte_perplexity": (loglikelihood, size),
        "bits_per_byte": (loglikelihood, size),
    }


def plain_text(doc: dict[str, Any]) -> str:
    """Returns the page without the marks of tokenization."""
    return detokenized(doc["page"])


def process_results(doc: dict[str, Any], results: list[float]) -> dict[str, tuple[float, int]]:
    """Returns the items of the perplexity metrics.

    Words and bytes are counted in the original page, so that models can be compared.
    """
    return perplexity_items(doc["page"], results[0])
