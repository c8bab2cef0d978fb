"""Whether two results say the same, and if not, what is not as it was."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval.errors import OutputError

#: A results file has the time in its name, whatever else it is called.
_STAMPED = re.compile(r".+_(?P<time>\d{4}-\d\d-\d\dT[\d.-]+)\.json")
#: Of a task: what its hashes stand for.
_HASHES = {"config": "configuration", "data": "data", "prompts": "prompts"}


@dataclass
class Agreement:
    """How results made again compare with the first: line by line, in words."""

    numbers: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    surroundings: list[str] = field(default_factory=list)

    @property
    def identical(self) -> bool:
        """Every number is the same, and so is what it was made from."""
        return not self.numbers and not self.causes


def latest_results(path: Path) -> Path:
    """A results file as it is named; of a folder, the last that was written below it."""
    if not path.is_dir():
        return path
    stamped = {file: _STAMPED.fullmatch(file.name) for file in path.rglob("*.json")}
    files = {file: found["time"] for file, found in stamped.items() if found is not None}
    if not files:
        raise OutputError(f"{path}: holds no results (results_<time>.json).")
    return max(files, key=lambda file: files[file])


def read_results(path: Path) -> dict[str, Any]:
    """A results file, or an error that says why it is none."""
    if not path.is_file():
        raise OutputError(f"{path}: there is no such file.")
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise OutputError(f"{path}: cannot be read as results ({error}).") from error
    rows = content.get("results") if isinstance(content, dict) else None
    if not isinstance(rows, dict) or not all(isinstance(row, dict) for row in rows.values()):
        raise OutputError(f"{path}: is no results file: it has no rows under `results`.")
    return dict(content)


def compare(before: Mapping[str, Any], now: Mapping[str, Any], rounding: float = 0.0) -> Agreement:
    """What differs: numbers, what they were made from, and what they were made with.

    Numbers are the same if they differ by no more than `rounding` of their size.
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
        # Where others give no error, we may.
        known = value != "N/A" or not rounding
        if "," in key and known and not _same(value, new, rounding):
            yield f"{task}: {key} was {value}, is {new}"


def _same(old: Any, new: Any, rounding: float) -> bool:
    if isinstance(old, float) and isinstance(new, (int, float)):
        both_nan = math.isnan(old) and math.isnan(new)
        return both_nan or old == new or math.isclose(old, new, rel_tol=rounding)
    return bool(old == new)


def _surroundings(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """What may explain the last digits: versions, code, machine."""
    versions = {"lm_eval": before.get("lm_eval_version"), **(before.get("libraries") or {})}
    current = {"lm_eval": now.get("lm_eval_version"), **(now.get("libraries") or {})}
    for name, version in versions.items():
        if version != current.get(name):
            yield f"{name} was {version}, is {current.get(name)}"
    for name, value in (before.get("hardware") or {}).items():
        new = (now.get("hardware") or {}).get(name)
        if value != new:
            yield f"{name} was {value}, is {new}"
