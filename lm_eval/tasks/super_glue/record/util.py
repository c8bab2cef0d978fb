"""Prompt and scoring for ReCoRD: which entity of a news story fills the gap in a statement."""

from __future__ import annotations

from typing import Any

from lm_eval.helpers.squad import compute_exact, compute_f1


def passage(doc: dict[str, Any]) -> str:
    """Returns the prompt: the story, then its highlights as a list that the statement continues."""
    story, *highlights = doc["passage"].strip().split("\n@highlight\n")
    return f"{story}\n\n" + "".join(f"  - {highlight}.\n" for highlight in highlights)


def _statement(doc: dict[str, Any], entity: str) -> str:
    """Returns the statement as a list item with `entity` in its gap."""
    return f"  - {doc['query']}".replace("@placeholder", entity)


def entities(doc: dict[str, Any]) -> list[str]:
    """Returns the candidate entities, sorted and without duplicates."""
    return sorted(set(doc["entities"]))


def statements(doc: dict[str, Any]) -> list[str]:
    """Returns the choices: the statement with each entity in its gap."""
    return [_statement(doc, entity) for entity in entities(doc)]


def gold_statement(doc: dict[str, Any]) -> str:
    """Returns the statement with the correct entity; of several, the alphabetically first."""
    return _statement(doc, min(doc["answers"]))


def process_results(
    doc: dict[str, Any], results: list[tuple[float, bool]]
) -> dict[str, float | int]:
    """Returns `f1` and `em` of the entity with the highest log-likelihood.

    Of several correct entities, the best match counts.
    """
    scores = [score for score, _ in results]
    answer = entities(doc)[scores.index(max(scores))]
    return {
        "f1": max(compute_f1(gold, answer) for gold in doc["answers"]),
        "em": max(compute_exact(gold, answer) for gold in doc["answers"]),
    }
