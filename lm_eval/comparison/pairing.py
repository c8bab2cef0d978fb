"""Decides whether two runs of a task can be compared, and which of their documents are the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lm_eval.comparison.scored_runs import ScoredTask

#: What must be equal, and how messages name it.
_NAMES = {
    "version": "version",
    "num_fewshot": "number of few-shot examples",
    "output_type": "output type",
    "generation_kwargs": "generation settings",
    "repeats": "number of repeats",
    "data": "data",
    "prompts": "prompts (without chat template)",
}


def setting_differences(first: ScoredTask, second: ScoredTask) -> list[str]:
    """Returns in words what differs between two runs of a task besides the model.

    A comparison is only about the models if nothing does. What is not known of one of them (a log
    has no hash of the data) is not compared; of prompts and data nothing is said if the documents
    differ.
    """
    found = []
    same_documents = set(first.documents) == set(second.documents)
    for key, name in _NAMES.items():
        one, two = first.settings.get(key), second.settings.get(key)
        if one is None or two is None or one == two:
            continue
        if key in ("data", "prompts"):
            if same_documents:
                found.append(f"{name} differ")
        else:
            found.append(f"{name}: {one} and {two}")
    named = {"num_fewshot", "output_type", "generation_kwargs", "repeats"}
    found += [
        f"{key} of the configuration"
        for key in _differing(first.settings["config"], second.settings["config"])
        if key not in named
    ]
    return found


def _differing(one: Mapping[str, Any], two: Mapping[str, Any]) -> list[str]:
    return sorted(key for key in {**one, **two} if one.get(key) != two.get(key))


def common_documents(first: ScoredTask, second: ScoredTask) -> list[tuple[int, int]]:
    """Returns the positions of the documents that both runs scored, `(in first, in second)`.

    Documents are the same if their numbers are, and, where the data may differ, their contents.
    """
    places = {number: place for place, number in enumerate(second.documents)}
    pairs = [
        (place, places[number]) for place, number in enumerate(first.documents) if number in places
    ]
    if first.hashes and second.hashes:
        return [(a, b) for a, b in pairs if first.hashes[a] == second.hashes[b]]
    return pairs
