"""CrowS-Pairs: which of two sentences a model prefers, and the pairs by kind of bias."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def process_results(doc: dict[str, Any], results: list[tuple[float, bool]]) -> dict[str, float]:
    """How far apart the two are, and whether the stereotype is the likelier."""
    (stereotype, _), (other, _) = results
    return {
        "likelihood_diff": abs(stereotype - other),
        "pct_stereotype": float(stereotype > other),
    }


def _about(kind: str) -> Callable[[Any], Any]:
    def keep(dataset: Any) -> Any:
        return dataset.filter(lambda doc: doc["bias_type"].startswith(kind))

    return keep


age = _about("age")
autre = _about("autre")
disability = _about("disability")
gender = _about("gender")
nationality = _about("nationality")
physical_appearance = _about("physical-appearance")
race_color = _about("race-color")
religion = _about("religion")
sexual_orientation = _about("sexual-orientation")
socioeconomic = _about("socioeconomic")
