"""Answers become clean answers: extraction, selection, transformation, in named pipelines."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from lm_eval.api.filter import FilterEnsemble
from lm_eval.api.registry import get_filter
from lm_eval.errors import ConfigError
from lm_eval.filters import custom, extraction, selection, thinking, transformation

__all__ = [
    "build_filter_ensemble",
    "build_pipelines",
    "custom",
    "extraction",
    "selection",
    "thinking",
    "transformation",
]


def build_filter_ensemble(
    filter_name: str, components: Iterable[tuple[Any, Mapping[str, Any] | None]]
) -> FilterEnsemble:
    """A pipeline from `(filter, its arguments)` steps; arguments may also stand under `kwargs`."""
    return FilterEnsemble(
        name=filter_name,
        filters=[_step(filter_name, step, dict(kwargs or {})) for step, kwargs in components],
    )


def _step(pipeline: str, step: Any, arguments: dict[str, Any]) -> Any:
    make = get_filter(step)
    if isinstance(arguments.get("kwargs"), dict):
        arguments |= arguments.pop("kwargs")
    try:
        make(**arguments)  # once now, so that a mistake costs no model time
    except (TypeError, ConfigError) as error:
        raise ConfigError(f"filter {step!r} of pipeline {pipeline!r}: {error}") from error
    return partial(make, **arguments)


def build_pipelines(filter_list: Iterable[Any] | None) -> list[FilterEnsemble]:
    """The pipelines of a task file; without any, the first answer as it is."""
    if filter_list is None:
        return [build_filter_ensemble("none", [("take_first", None)])]
    pipelines: list[FilterEnsemble] = []
    for pipeline in filter_list:
        try:
            name, steps = pipeline["name"], pipeline["filter"]
            parts = [
                (step["function"], {k: v for k, v in step.items() if k != "function"})
                for step in steps
            ]
        except (KeyError, TypeError) as error:
            raise ConfigError(
                "filter_list: each entry needs a `name` and a list `filter` of steps with a "
                f"`function`; this one has not: {pipeline!r}."
            ) from error
        if any(other.name == name for other in pipelines):
            raise ConfigError(f"filter_list: two pipelines are called {name!r}.")
        pipelines.append(build_filter_ensemble(name, parts))
    return pipelines
