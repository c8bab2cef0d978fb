"""Compares two results and lists what differs, for `lm-eval reproduce`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The hashes of a task that are compared, and how messages name what they are taken of.
_HASHES = {"config": "configuration", "data": "data", "prompts": "prompts"}


@dataclass
class Agreement:
    """The differences between two results, as lists of one-line messages."""

    numbers: list[str] = field(default_factory=list)
    """Scores and standard errors that differ."""
    inputs: list[str] = field(default_factory=list)
    """What the scores depend on: configuration, data and prompts of tasks, model, chat template."""
    environment: list[str] = field(default_factory=list)
    """Library versions and hardware."""

    @property
    def identical(self) -> bool:
        """Whether two results have the same numbers and inputs; the environment may differ.

        Inputs are the configuration, data and prompts of the tasks, the model and the chat
        template. Numbers count as the same within the tolerance that was passed to `compare`.
        """
        return not self.numbers and not self.inputs


def compare(before: Mapping[str, Any], now: Mapping[str, Any], tolerance: float = 0.0) -> Agreement:
    """Returns how the results `now` differ from the results `before`, and the other way round.

    The models are compared only if both results contain `model_identity`. With a tolerance, only
    the tasks and metrics of `before` are compared: the published harness writes fewer. Two numbers
    are equal if their relative difference is at most `tolerance`.
    With a tolerance, a value of `N/A` in `before` is skipped.
    """
    found = Agreement()
    for task, row in before["results"].items():
        found.numbers += _differing_numbers(task, row, now["results"].get(task), tolerance)
    if not tolerance:
        for task in now["results"]:
            if task not in before["results"]:
                found.numbers.append(f"{task}: is not in the file, but in the new results")
    clean = now.get("decontaminated", {})
    for task, row in before.get("decontaminated", {}).items():
        found.numbers += _differing_numbers(f"{task} (clean)", row, clean.get(task), tolerance)
    for task, hashes in before.get("hashes", {}).items():
        for key, label in _HASHES.items():
            old, new = hashes.get(key), now.get("hashes", {}).get(task, {}).get(key)
            if old != new:
                found.inputs.append(f"task {task}: its {label} (hash {old}, now {new})")
    one, two = before.get("model_identity"), now.get("model_identity")
    if one and two and one != two:
        parts = [part for part in {**one, **two} if one.get(part) != two.get(part)]
        found.inputs.append(f"the model: {', '.join(parts)}")
    if before.get("chat_template_sha") != now.get("chat_template_sha"):
        found.inputs.append("the chat template")
    with_findings = before.get("decontaminated_with", {}), now.get("decontaminated_with", {})
    if with_findings[0].get("fingerprint") != with_findings[1].get("fingerprint"):
        found.inputs.append("the findings of --decontaminate")
    found.environment += _differing_environment(before, now)
    return found


def _differing_numbers(
    task: str, row: Mapping[str, Any], again: Mapping[str, Any] | None, tolerance: float
) -> Iterator[str]:
    """Yields a message for every score and standard error of `row` that differs in `again`.

    Without a `tolerance`, also for those of `again` that `row` lacks.

    `row` is the task's row in the old results, `again` its row in the new ones, or None if the
    task is missing there.
    """
    if again is None:
        yield f"{task}: is missing from the new results"
        return
    for key, value in row.items():
        new = again.get(key)
        # We compute standard errors for some metrics for which the published harness stores `N/A`.
        known = value != "N/A" or not tolerance
        if "," in key and known and not _same(value, new, tolerance):
            yield f"{task}: {key} was {value}, is now {new}"
    for key in again if not tolerance else ():
        if "," in key and key not in row:
            yield f"{task}: {key} is not in the file, is now {again[key]}"


def _same(old: Any, new: Any, tolerance: float) -> bool:
    """Returns whether two values are equal; NaN equals NaN.

    If `old` is a float, a relative difference up to `tolerance` counts as equal.
    """
    if isinstance(old, float) and isinstance(new, (int, float)):
        both_nan = math.isnan(old) and math.isnan(new)
        return both_nan or old == new or math.isclose(old, new, rel_tol=tolerance)
    return bool(old == new)


def _differing_environment(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Yields a message for every library version and hardware property of `before` that differs.

    Such differences can change the last digits of a score.
    """
    versions = {"lm_eval": before.get("lm_eval_version"), **(before.get("libraries") or {})}
    current = {"lm_eval": now.get("lm_eval_version"), **(now.get("libraries") or {})}
    for name, version in versions.items():
        if version != current.get(name):
            yield f"{name} was {version}, is now {current.get(name)}"
    for name, value in (before.get("hardware") or {}).items():
        new = (now.get("hardware") or {}).get(name)
        if value != new:
            yield f"{name} was {value}, is now {new}"
