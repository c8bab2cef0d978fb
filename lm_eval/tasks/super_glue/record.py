"""ReCoRD: a news story, and a statement with a hole that one of its entities fills."""

from __future__ import annotations

from typing import Any

from lm_eval.tasks.squadv2.overlap import exact, f1


def passage(doc: dict[str, Any]) -> str:
    """The story, then its highlights as a list that the statement continues."""
    story, *highlights = doc["passage"].strip().split("\n@highlight\n")
    return f"{story}\n\n" + "".join(f"  - {highlight}.\n" for highlight in highlights)


def _statement(doc: dict[str, Any], entity: str) -> str:
    return f"  - {doc['query']}".replace("@placeholder", entity)


def entities(doc: dict[str, Any]) -> list[str]:
    return sorted(set(doc["entities"]))


def statements(doc: dict[str, Any]) -> list[str]:
    return [_statement(doc, entity) for entity in entities(doc)]


def gold_statement(doc: dict[str, Any]) -> str:
    """Of several right entities, the first by name."""
    return _statement(doc, min(doc["answers"]))


def process_results(
    doc: dict[str, Any], results: list[tuple[float, bool]]
) -> dict[str, float | int]:
    """The likeliest entity against every right one."""
    scores = [score for score, _ in results]
    answer = entities(doc)[scores.index(max(scores))]
    return {
        "f1": max(f1(gold, answer) for gold in doc["answers"]),
        "em": max(exact(gold, answer) for gold in doc["answers"]),
    }
