"""Compare two results: whether they agree, and if not, what differs."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: What the hashes of a task stand for.
_HASHES = {"config": "configuration", "data": "data", "prompts": "prompts"}


@dataclass
class Agreement:
    """The differences between two results, one line of text each."""

    numbers: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    surroundings: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Whether every number and everything it was made from is the same."""
        return not self.numbers and not self.causes


def compare(before: Mapping[str, Any], now: Mapping[str, Any], rounding: float = 0.0) -> Agreement:
    """Returns the differences in numbers, in what they were made from, and in the environment.

    Two numbers agree if they differ by at most `rounding`, relative to their size.
    """
    found = Agreement()
    for task, row in before["results"].items():
        found.numbers += _numbers(task, row, now["results"].get(task), rounding)
    for task, hashes in before.get("hashes", {}).items():
        for key, words in _HASHES.items():
            old, new = hashes.get(key), now.get("hashes", {}).get(task, {}).get(key)
            if old != new:
                found.causes.append(f"task {task}: its {words} (hash {old}, now {new})")
    one, two = before.get("model_identity"), now.get("model_identity")
    if one and two and one != two:
        parts = [part for part in {**one, **two} if one.get(part) != two.get(part)]
        found.causes.append(f"the model: {', '.join(parts)}")
    if before.get("chat_template_sha") != now.get("chat_template_sha"):
        found.causes.append("the chat template")
    found.surroundings += _surroundings(before, now)
    return found


def _numbers(
    task: str, row: Mapping[str, Any], again: Mapping[str, Any] | None, rounding: float
) -> Iterator[str]:
    if again is None:
        yield f"{task}: is not among the results"
        return
    for key, value in row.items():
        new = again.get(key)
        # We may give a standard error where the published harness gives none.
        known = value != "N/A" or not rounding
        if "," in key and known and not _same(value, new, rounding):
            yield f"{task}: {key} was {value}, is {new}"


def _same(old: Any, new: Any, rounding: float) -> bool:
    if isinstance(old, float) and isinstance(new, (int, float)):
        both_nan = math.isnan(old) and math.isnan(new)
        return both_nan or old == new or math.isclose(old, new, rel_tol=rounding)
    return bool(old == new)


def _surroundings(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields what may explain the last digits: versions, code, machine."""
    versions = {"lm_eval": before.get("lm_eval_version"), **(before.get("libraries") or {})}
    current = {"lm_eval": now.get("lm_eval_version"), **(now.get("libraries") or {})}
    for name, version in versions.items():
        if version != current.get(name):
            yield f"{name} was {version}, is {current.get(name)}"
    for name, value in (before.get("hardware") or {}).items():
        new = (now.get("hardware") or {}).get(name)
        if value != new:
            yield f"{name} was {value}, is {new}"
