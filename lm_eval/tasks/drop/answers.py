"""Scoring for DROP: compares numbers, dates and text spans with all accepted answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.helpers.drop import drop_metrics


def spans(answer: dict[str, Any]) -> tuple[str, ...]:
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
    return list(dict.fromkeys(map(spans, [doc["answer"], *others])))


def best_match(response: Sequence[str], golds: Sequence[Sequence[str]]) -> dict[str, float]:
    """Returns `em` and `f1` against the best-matching of several accepted answers.

    `response` is a list of text spans. Accepted answers that begin with an empty span are skipped.
    """
    scores = [drop_metrics(response, gold) for gold in golds if gold[0].strip()]
    return {
        "em": max((em for em, _ in scores), default=0.0),
        "f1": max((f1 for _, f1 in scores), default=0.0),
    }


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, float]:
    """Returns `em` and `f1` against the best-matching accepted answer."""
    return best_match(results, accepted(doc))
