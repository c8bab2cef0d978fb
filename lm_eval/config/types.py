"""Checks values of YAML files against the types of fields, and describes types in messages."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable
from functools import cache
from typing import Any, Literal, Union

from lm_eval.config.functions import FunctionRef

_PLAIN = {str: "a string", int: "a number", float: "a number", bool: "true or false"}


@cache
def field_types(schema: Any) -> dict[str, Any]:
    """Returns the type of every field of a dataclass by name, with forward references resolved."""
    hints = typing.get_type_hints(schema)
    return {f.name: hints[f.name] for f in dataclasses.fields(schema)}


@cache
def _plain_types(hint: Any) -> frozenset[type]:
    """Returns the types of plain values all of which have the type `hint`."""
    # Both bools, and texts and numbers that no `Literal` contains: it allows only some of a type.
    examples: tuple[tuple[Any, ...], ...] = (("\0",), (-987654321,), (True, False), (None,), ({},))
    return frozenset(
        type(some[0]) for some in examples if all(_conforms(one, hint) for one in some)
    )


def conforms(value: Any, hint: Any) -> bool:
    """Returns whether a value from a YAML file has the type `hint`.

    The items of a list are checked, the keys and values of a dictionary are not. An int is a float
    too, but a bool is neither. A `!function`, resolved or not, is a `Callable`. Any value conforms
    to a dataclass, since those are checked elsewhere.
    """
    return type(value) in _plain_types(hint) or _conforms(value, hint)


def _conforms(value: Any, hint: Any) -> bool:
    """Returns the same as `conforms`; slower, because it examines the type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any or dataclasses.is_dataclass(hint):
        return True
    if hint is None or hint is type(None):
        return value is None
    if origin in (Union, types.UnionType):
        return any(conforms(value, option) for option in arguments)
    if origin is Literal:
        return value in arguments
    if origin is list:
        return isinstance(value, list) and all(conforms(item, arguments[0]) for item in value)
    if origin is dict:
        return isinstance(value, dict)
    if hint is Callable or origin is Callable or origin is typing.get_origin(Callable[..., Any]):
        return isinstance(value, FunctionRef) or callable(value)
    if hint is float:
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def describe(hint: Any) -> str:
    """Returns a type in the words of a message, such as "a string or a list".

    None is left out of a union: `str | None` is "a string".
    """
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (Union, types.UnionType):
        words = [describe(option) for option in arguments if option is not type(None)]
        return " or ".join(dict.fromkeys(words))
    if origin is Literal:
        return "one of " + ", ".join(map(str, arguments))
    if origin is list:
        return "a list"
    if origin is dict:
        return "a mapping"
    if origin is not None or hint is Callable:
        return "a !function"
    return _PLAIN.get(hint, getattr(hint, "__name__", str(hint)))
