"""DROP's scores: numbers, dates and spans of text against all answers that people accepted."""

from __future__ import annotations

import contextlib
import re
import string
from typing import Any

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def _number(word: str) -> str | None:
    with contextlib.suppress(ValueError):
        return str(float(word))
    return None


def _spans(answer: dict[str, Any]) -> tuple[str, ...]:
    if answer["number"] != "":
        return (str(answer["number"]),)
    if answer["spans"]:
        return tuple(answer["spans"])
    return (" ".join(answer["date"][part] for part in ("day", "month", "year")).strip(),)


def accepted(doc: dict[str, Any]) -> list[tuple[str, ...]]:
    """The answer and those of the validators, each once."""
    validated = doc["validated_answers"]
    others = [
        {part: validated[part][place] for part in ("number", "date", "spans")}
        for place in range(len(validated["number"]))
    ]
    return list(dict.fromkeys(map(_spans, [doc["answer"], *others])))


def normalise(text: str) -> str:
    words = (_clean(word.lower()) for word in re.split(" |-", text))
    return " ".join(word for word in words if word)


def _clean(word: str) -> str:
    if _number(word) is None:
        word = word.translate(_PUNCTUATION)
    word = _number(word) or word
    return " ".join(_ARTICLES.sub(" ", word).split())


def _overlap(given: set[str], expected: set[str]) -> float:
    """F1 of the words; nothing, where none of the expected numbers was given."""
    numbers = {word for word in expected if _number(word) is not None}
    if numbers and not numbers & given:
        return 0.0
    shared = len(given & expected)
    precision = shared / len(given) if given else 1.0
    recall = shared / len(expected) if expected else 1.0
    return 2 * precision * recall / (precision + recall) if precision or recall else 0.0


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Of several spans, the model's one text is held against the nearest; the others are missed."""
    said = normalise(results[0])
    em = f1 = 0.0
    for spans in accepted(doc):
        if not spans[0].strip():
            continue
        wanted = [normalise(span) for span in spans]
        nearest = max(_overlap(set(said.split()), set(span.split())) for span in wanted)
        em = max(em, float(wanted == [said]))
        f1 = max(f1, round(nearest / len(wanted), 2))
    return {"em": em, "f1": f1}
