"""Filters that clean up model answers before scoring, and the functions that build pipelines.

A pipeline is a named list of filter steps. The steps are in `extraction` (find the answer in a
text), `selection` (choose among repeated answers), `transformation` (rewrite each answer),
`thinking` (remove reasoning text), `decontamination` (leave out documents that are in training
data) and `custom` (call a function from a task folder). The base class that every filter implements
is `lm_eval.api.filter.Filter`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval.api.filter import FilterEnsemble
from lm_eval.api.registry import filter_registry, get_filter
from lm_eval.errors import ConfigError
from lm_eval.filters import (
    custom,
    decontamination,
    extraction,
    selection,
    thinking,
    transformation,
)

__all__ = [
    "absolute_paths",
    "build_filter_ensemble",
    "build_pipelines",
    "custom",
    "decontamination",
    "extraction",
    "file_arguments",
    "selection",
    "thinking",
    "transformation",
]


def build_filter_ensemble(
    filter_name: str, components: Iterable[tuple[Any, Mapping[str, Any] | None]]
) -> FilterEnsemble:
    """Returns a filter pipeline called `filter_name`.

    Every filter is constructed once here to check its arguments, so that a mistake is reported
    before the model runs.

    Args:
        filter_name: the name under which the pipeline's answers and scores are reported.
        components: the steps in order, each as `(filter, arguments)`. `filter` is a registered
            name, a `Filter` class or a function that returns a `Filter`. `arguments` is a mapping
            of its keyword arguments, or None. A mapping under the key `kwargs` is merged into them.

    Raises:
        UnknownNameError: a filter name is not registered.
        ConfigError: a filter does not accept its arguments.

    Example::

        number = ("regex", {"regex_pattern": "([0-9]+)"})
        build_filter_ensemble("first_number", [number, ("take_first", None)])
    """
    return FilterEnsemble(
        name=filter_name,
        filters=[_step(filter_name, step, dict(kwargs or {})) for step, kwargs in components],
    )


def _step(pipeline: str, step: Any, arguments: dict[str, Any]) -> Any:
    """Returns a function without parameters that constructs the filter `step`.

    Raises `ConfigError` if the filter does not accept `arguments`, and `UnknownNameError` if there
    is no filter of this name. `pipeline` is the name of the pipeline, for the message.
    """
    make = get_filter(step)
    if isinstance(arguments.get("kwargs"), dict):
        arguments |= arguments.pop("kwargs")
    try:
        make(**arguments)  # Check the arguments now, before the model spends any time.
    except (TypeError, ConfigError) as error:
        raise ConfigError(
            f"filter {step!r} of pipeline {pipeline!r} does not accept its arguments: {error}"
        ) from error
    return partial(make, **arguments)


def build_pipelines(filter_list: Iterable[Any] | None) -> list[FilterEnsemble]:
    """Returns the filter pipelines of a task, given the `filter_list` of its task file.

    If `filter_list` is None, returns one pipeline called "none" that takes the first answer
    unchanged. Raises `ConfigError` if an entry is malformed, two pipelines have the same name, or a
    filter does not accept its arguments, and `UnknownNameError` if a filter is not registered.
    """
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
                "filter_list: each entry needs a `name` and a list `filter`, each step of which "
                f"needs a `function`; this entry does not have them: {pipeline!r}."
            ) from error
        if any(other.name == name for other in pipelines):
            raise ConfigError(
                f"filter_list: two pipelines are called {name!r}; give each a different name."
            )
        pipelines.append(build_filter_ensemble(name, parts))
    return pipelines


def absolute_paths(filter_list: Any, folder: Path | None) -> Any:
    """Returns a copy of a `filter_list` in which the paths of files are absolute.

    These are the arguments that filters declare in `FILE_ARGUMENTS`. They are relative to `folder`,
    or to the working directory if it is None. What is not a pipeline, and filters that do not
    exist, are kept as they are; `build_pipelines` reports them.
    """
    root = Path.cwd() if folder is None else folder

    def arguments(step: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
        paths = {name: step[name] for name in names if isinstance(step.get(name), str)}
        nested = step.get("kwargs")
        below = {"kwargs": arguments(nested, names)} if isinstance(nested, dict) else {}
        made = {name: str(root / Path(path).expanduser()) for name, path in paths.items()}
        return {**step, **made, **below}

    def complete(pipeline: Any) -> Any:
        steps = pipeline.get("filter") if isinstance(pipeline, dict) else None
        if not isinstance(steps, list):
            return pipeline
        done = [
            arguments(step, names)
            if isinstance(step, dict) and (names := file_arguments(step.get("function")))
            else step
            for step in steps
        ]
        return {**pipeline, "filter": done}

    return [complete(one) for one in filter_list] if isinstance(filter_list, list) else filter_list


def file_arguments(step: Any) -> tuple[str, ...]:
    """Returns the names of the arguments of a filter that are paths of files.

    `step` is its registered name, its class, or a function that returns it. Empty if there is no
    such filter.
    """
    if isinstance(step, str):
        step = get_filter(step) if step in filter_registry else None
    return tuple(getattr(step, "FILE_ARGUMENTS", ()))
