"""WebQuestions: every accepted answer is a choice, and all are right."""

from __future__ import annotations

from typing import Any


def accepted(doc: dict[str, Any]) -> list[str]:
    """Without those that begin with another: a model that says them has said that one."""
    kept: list[str] = []
    for answer in sorted(doc["answers"]):
        if not kept or not answer.startswith(kept[-1]):
            kept.append(answer)
    return kept


def all_right(doc: dict[str, Any]) -> list[int]:
    return list(range(len(accepted(doc))))
