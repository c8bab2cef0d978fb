"""T5's version of the Winograd Schema Challenge: generate what the marked pronoun refers to."""

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
    """Returns the prompt: the text with the pronoun between asterisks.

    Two documents are irregular: in one, the pronoun is one word after `span2_index`; in the other,
    punctuation is attached to it.
    """
    words, place, pronoun = doc["text"].split(" "), doc["span2_index"], doc["span2_text"]
    if words[place] != pronoun and words[place + 1] == pronoun:
        place += 1
    attached = words[place][len(pronoun) :]
    words[place] = f"*{pronoun}* {attached}" if attached else f"*{pronoun}*"
    text = " ".join(words)
    return "wsc: " + (text.rstrip() if attached else text)


def _normalized(text: str) -> str:
    """Returns `text` in lower case without determiners."""
    return " ".join(word for word in text.strip().lower().split(" ") if word not in _DETERMINERS)


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns `accuracy`: 1.0 if the prediction equals the label.

    The prediction is True if the response names the noun, with more or fewer words: the words of
    one must contain those of the other.
    """
    answer, noun = _normalized(results[0]), _normalized(doc["span1_text"])
    given, expected = set(answer.split(" ")), set(noun.split(" "))
    same_case = ("'" in answer) == ("'" in noun)  # "Bob's hat" does not name "Bob"
    refers = same_case and (given <= expected or expected <= given)
    return {"accuracy": float(refers == bool(doc["label"]))}
