"""Scoring for DROP: compares numbers, dates and text spans with all accepted answers."""

from __future__ import annotations

import contextlib
import re
import string
from typing import Any

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _number(word: str) -> str | None:
    """Returns `word` as a float's text ("3" becomes "3.0"), or None if it is no number."""
    with contextlib.suppress(ValueError):
        return str(float(word))
    return None


def _spans(answer: dict[str, Any]) -> tuple[str, ...]:
    """Returns an answer of the dataset as text spans: its number, its spans, or its date."""
    if answer["number"] != "":
        return (str(answer["number"]),)
    if answer["spans"]:
        return tuple(answer["spans"])
    return (" ".join(answer["date"][part] for part in ("day", "month", "year")).strip(),)


def accepted(doc: dict[str, Any]) -> list[tuple[str, ...]]:
    """Returns the accepted answers without duplicates: the gold answer, then the validators'.

    Each is a tuple of text spans; numbers and dates are one span.
    """
    validated = doc["validated_answers"]
    others = [
        {part: validated[part][place] for part in ("number", "date", "spans")}
        for place in range(len(validated["number"]))
    ]
    return list(dict.fromkeys(map(_spans, [doc["answer"], *others])))


def normalize(text: str) -> str:
    """Returns `text` in lower case, without articles and punctuation, numbers as floats."""
    words = (_clean(word.lower()) for word in re.split(" |-", text))
    return " ".join(word for word in words if word)


def _clean(word: str) -> str:
    if _number(word) is None:
        word = word.translate(_PUNCTUATION)
    word = _number(word) or word
    return " ".join(_ARTICLES.sub(" ", word).split())


def _overlap(given: set[str], expected: set[str]) -> float:
    """Returns the F1 of two word sets; 0.0 if numbers are expected and none of them is given."""
    numbers = {word for word in expected if _number(word) is not None}
    if numbers and not numbers & given:
        return 0.0
    shared = len(given & expected)
    precision = shared / len(given) if given else 1.0
    recall = shared / len(expected) if expected else 1.0
    return 2 * precision * recall / (precision + recall) if precision or recall else 0.0


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns `em` and `f1` against the best-matching accepted answer.

    The response counts as one span. If an answer has several spans, the F1 of the most similar span
    is divided by their number, since the others are missing.
    """
    response = normalize(results[0])
    em = f1 = 0.0
    for spans in accepted(doc):
        if not spans[0].strip():
            continue
        expected = [normalize(span) for span in spans]
        nearest = max(_overlap(set(response.split()), set(span.split())) for span in expected)
        em = max(em, float(expected == [response]))
        f1 = max(f1, round(nearest / len(expected), 2))
    return {"em": em, "f1": f1}
