"""Put the parts of a result together: the only place where a results dictionary is made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from lm_eval.results.samples import task_hash
from lm_eval.results.schema import (
    FORMAT,
    EvalResults,
    Reproduction,
    RunDescription,
    RunStatistics,
    Summary,
    TaskInputs,
)
from lm_eval.results.serialise import plain


def assemble(
    summary: Summary | EvalResults,
    *,
    inputs: TaskInputs | None = None,
    statistics: RunStatistics | None = None,
    description: RunDescription | None = None,
    reproduction: Reproduction | None = None,
    scored_from: Mapping[str, Any] | None = None,
) -> EvalResults:
    """Returns the results: all parts in one dictionary of plain JSON data.

    `summary` is what `summarise` returned, or results assembled before, to which parts are added.
    Parts that are not given are absent from the results: a partial result has a summary alone, a
    rescored one has no statistics. Except for `samples`, which keep the types that the task and
    the model gave them, the results are equal to what `read_results` reads after `save`.

    A new field goes into one of the parts (`schema.py`) and needs no change here.
    """
    given: dict[str, Any] = {"format": FORMAT, **summary}
    samples = given.pop("samples", None)
    hashes = given.pop("task_hashes", {}) if samples is None else task_hashes(samples)
    for part in (inputs, statistics, description, reproduction):
        given.update(part or {})
    if scored_from is not None:
        given["scored_from"] = scored_from
    given["task_hashes"] = hashes
    results = cast("EvalResults", plain(given))
    if samples is not None:
        results["samples"] = samples
    return results


def task_hashes(samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Returns by task the hash of its documents, prompts and targets."""
    return {name: task_hash(logged) for name, logged in samples.items()}
