"""Write a configuration out so that a results file can hold it: functions as their source."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from typing import Any


def serialise_function(function: Callable[..., Any] | str, keep_callable: bool = False) -> Any:
    """A function's source text, so that the results say what was run."""
    if keep_callable or isinstance(function, str):
        return function
    try:
        return inspect.getsource(function)
    except (TypeError, OSError):
        return str(function)


def serialise(value: Any, keep_callable: bool = False) -> Any:
    """A plain copy of a configuration value, unset (`None`) fields of dataclasses left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        present = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {k: serialise(v, keep_callable) for k, v in present.items() if v is not None}
    if isinstance(value, dict):
        return {k: serialise(v, keep_callable) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [serialise(v, keep_callable) for v in value]
    if callable(value):
        return serialise_function(value, keep_callable)
    return value
