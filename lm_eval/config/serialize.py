"""Converts configurations to plain data for results files; functions become source code."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from lm_eval.config.callables import describe_callable

_PLAIN = frozenset({str, int, float, bool, type(None)})


def serialize_function(function: Callable[..., Any] | str, keep_callable: bool = False) -> Any:
    """Returns a function's source code, or a description of another callable.

    The text is the same in every process; see `describe_callable`. A string, and with
    `keep_callable` any function, is returned unchanged.
    """
    if keep_callable or isinstance(function, str):
        return function
    return describe_callable(function)


def serialize(value: Any, keep_callable: bool = False) -> Any:
    """Returns a copy of `value` made of dictionaries, lists and plain values.

    Dataclasses become dictionaries without the fields that are None, and tuples become lists.
    Functions and classes become their source code, unless `keep_callable` is set. Any other value
    is returned unchanged.
    """
    if type(value) in _PLAIN:  # nearly all values
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        present = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return {k: serialize(v, keep_callable) for k, v in present.items() if v is not None}
    if isinstance(value, dict):
        return {k: serialize(v, keep_callable) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [serialize(v, keep_callable) for v in value]
    if callable(value):
        return serialize_function(value, keep_callable)
    return value
