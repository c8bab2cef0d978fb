"""T5's way with the Winograd Schema Challenge: name what the marked pronoun stands for."""

from __future__ import annotations

from typing import Any

_DETERMINERS = frozenset(
    [
        "a",
        "an",
        "few",
        "her",
        "his",
        "each",
        "every",
        "many",
        "much",
        "my",
        "our",
        "some",
        "that",
        "the",
        "their",
        "these",
        "this",
        "those",
        "which",
        "whose",
        "your",
    ]
)


def question(doc: dict[str, Any]) -> str:
    """The pronoun between asterisks. In one text it stands a word further than is said; in
    another, punctuation is stuck to it."""
    words, place, pronoun = doc["text"].split(" "), doc["span2_index"], doc["span2_text"]
    if words[place] != pronoun and words[place + 1] == pronoun:
        place += 1
    stuck = words[place][len(pronoun) :]
    words[place] = f"*{pronoun}* {stuck}" if stuck else f"*{pronoun}*"
    text = " ".join(words)
    return "wsc: " + (text.rstrip() if stuck else text)


def _bare(text: str) -> str:
    """Small letters, and no determiners."""
    return " ".join(word for word in text.strip().lower().split(" ") if word not in _DETERMINERS)


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """The model says yes by naming the noun, in more or fewer words; no by anything else."""
    answer, noun = _bare(results[0]), _bare(doc["span1_text"])
    said, meant = set(answer.split(" ")), set(noun.split(" "))
    same_case = ("'" in answer) == ("'" in noun)  # Bob's hat is not Bob
    refers = same_case and (said <= meant or meant <= said)
    return {"accuracy": float(refers == bool(doc["label"]))}
