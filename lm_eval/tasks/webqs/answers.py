"""Choices for WebQuestions: the accepted answers, all of which are correct."""

from __future__ import annotations

from typing import Any


def accepted(doc: dict[str, Any]) -> list[str]:
    """Returns the accepted answers, sorted.

    An answer that begins with another accepted answer is left out: a model that generates it has
    generated the shorter one, too.
    """
    kept: list[str] = []
    for answer in sorted(doc["answers"]):
        if not kept or not answer.startswith(kept[-1]):
            kept.append(answer)
    return kept


def all_right(doc: dict[str, Any]) -> list[int]:
    """Returns the indices of all choices: each is correct."""
    return list(range(len(accepted(doc))))
