"""Wikipedia pages as they were before WikiText took them apart."""

from __future__ import annotations

import re
from typing import Any

#: What the corpus wrote, and what stood there, in the order of repair.
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


def joined(text: str) -> str:
    """A text without the spaces that tokenisation put into it."""
    for apart, together in _EARLY:
        text = text.replace(apart, together)
    for inside, start, end in _BRACKETS:
        text = inside.sub(rf"{start}\1{end}", text)
    for apart, together in _LATE:
        text = text.replace(apart, together)
    return text


def per_word_and_byte(text: str, loglikelihood: float) -> dict[str, tuple[float, int]]:
    words, size = len(re.split(r"\s+", text)), len(text.encode())
    return {
        "word_perplexity": (loglikelihood, words),
        "byte_perplexity": (loglikelihood, size),
        "bits_per_byte": (loglikelihood, size),
    }


def plain_text(doc: dict[str, Any]) -> str:
    return joined(doc["page"])


def process_results(doc: dict[str, Any], results: list[float]) -> dict[str, tuple[float, int]]:
    """Words and bytes are counted in the page as the corpus has it, so that models compare."""
    return per_word_and_byte(doc["page"], results[0])
