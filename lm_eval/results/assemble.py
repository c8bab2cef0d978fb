"""Builds the results dictionary from its parts. No other module builds one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from lm_eval.redaction import hide_secrets, without_secrets
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
from lm_eval.results.serialize import to_json_data


def assemble(
    summary: Summary | EvalResults,
    *,
    inputs: TaskInputs | None = None,
    statistics: RunStatistics | None = None,
    description: RunDescription | None = None,
    reproduction: Reproduction | None = None,
    scored_from: Mapping[str, Any] | None = None,
) -> EvalResults:
    """Returns the results: all parts merged into one dictionary of plain JSON data.

    `samples` are not converted: they keep the types that the task and the model returned. All
    other fields equal what `read_results` returns after `save`. To add a field, declare it in one
    of the parts in `schema.py`; this function needs no change.

    Args:
        summary: the scores that `summarize` returned, or earlier results to add parts to.
        inputs: datasets and hashes of the tasks.
        statistics: timings, token counts and request counts of the run.
        description: settings, model, software and hardware of the run.
        reproduction: what `lm-eval reproduce` needs to repeat the run.
        scored_from: for rescored results, where the stored answers were read from.

    A part that is None is left out. For example, partial results have only a summary, and rescored
    results have no statistics.
    """
    given: dict[str, Any] = {"format": FORMAT, **summary}
    samples = given.pop("samples", None)
    hashes = given.pop("task_hashes", {}) if samples is None else task_hashes(samples)
    for part in (inputs, statistics, description, reproduction):
        given.update(part or {})
    if scored_from is not None:
        given["scored_from"] = scored_from
    given["task_hashes"] = hashes
    results = cast("EvalResults", _without_secrets(to_json_data(given)))
    if samples is not None:
        results["samples"] = samples
    return results


#: Fields of the results, and of each task's configuration, that contain settings of the user.
_SETTINGS = ("config", "settings", "model_identity")
_TASK_SETTINGS = ("metadata", "dataset_kwargs", "generation_kwargs")


def _without_secrets(results: dict[str, Any]) -> dict[str, Any]:
    """Returns results without secrets in the settings of the run and the metadata of tasks.

    Other fields are not searched by name: their keys may be names of tasks or columns.
    """
    for name in _SETTINGS:
        if name in results:
            results[name] = without_secrets(results[name])
    if isinstance(configs := results.get("configs"), dict):
        for config in configs.values():
            if isinstance(config, dict):
                found = [name for name in _TASK_SETTINGS if config.get(name)]
                config.update({name: hide_secrets(config[name]) for name in found})
    return results


def task_hashes(samples: Mapping[str, list[dict[str, Any]]]) -> dict[str, str]:
    """Returns a dictionary of task name to the hash (`task_hash`) of its samples.

    The hash covers documents, prompts and targets.
    """
    return {name: task_hash(logged) for name, logged in samples.items()}
