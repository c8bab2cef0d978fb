"""Finds out with which arguments a metric function expects to be called.

Three calling conventions are in use:

- Lists with one element, `fn(references=[gold], predictions=[answer])`: published task folders and
  Hugging Face's `evaluate`.
- Plain values, `fn(references=gold, predictions=answer)`: functions written after the published
  guide to custom metrics.
- One pair, `fn([gold, answer])`: the oldest functions.

Functions without parameters `references` and `predictions` get a pair. To decide between the first
two, the function's source code is inspected: if it uses an argument in a way that a list does not
support, such as `predictions.strip()` or `float(references)`, it gets plain values. All other
functions get lists.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

ARGUMENTS = ("references", "predictions")

#: Functions that accept a single value, but not a list.
_SINGLE_VALUE_FUNCTIONS = {"float", "int", "complex", "Decimal", "Fraction"}
#: Functions whose argument is usually a list.
_LIST_FUNCTIONS = {
    *("zip", "enumerate", "len", "list", "tuple", "set", "sorted", "map", "filter", "iter", "next"),
    *("sum", "min", "max", "any", "all", "isinstance"),
}


class Convention(Enum):
    """The arguments with which a metric function is called."""

    LISTS = "references=[gold], predictions=[answer]"
    VALUES = "references=gold, predictions=answer"
    PAIR = "[gold, answer]"


def convention_of(function: Callable[..., Any]) -> Convention:
    """Returns the calling convention of a metric function.

    A function whose signature or source code is not available gets lists, unless its signature
    shows that it takes a pair.
    """
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return Convention.LISTS
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not any_keyword and not set(ARGUMENTS) <= parameters.keys():
        return Convention.PAIR
    return Convention.VALUES if _expects_values(function) else Convention.LISTS


def _expects_values(function: Callable[..., Any]) -> bool:
    """Returns whether the source code uses the arguments as single values, and never as lists.

    Returns False if there is no source code.
    """
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    usages = [usage for node in ast.walk(tree) for usage in _usage(node)]
    return "one" in usages and "many" not in usages


def _usage(node: ast.AST) -> Iterator[str]:
    """Yields "one" if a syntax node uses an argument as a single value, "many" if as a list."""
    if (
        (isinstance(node, (ast.Subscript, ast.Starred)) and _is_argument(node.value))
        or (isinstance(node, (ast.For, ast.comprehension)) and _is_argument(node.iter))
        or (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], (ast.Tuple, ast.List))
            and _is_argument(node.value)
        )
    ):
        yield "many"
    elif isinstance(node, ast.Attribute) and _is_argument(node.value):
        yield "many" if hasattr(list, node.attr) else "one"
    elif isinstance(node, ast.Call) and any(map(_is_argument, node.args)):
        yield from _usage_by_call(node.func)


def _usage_by_call(called: ast.expr) -> Iterator[str]:
    """Yields "one" or "many" if calling the function `called` shows what its argument is.

    `float` and `re` functions take one value, `len`, `zip` and numpy functions many. Yields nothing
    for other functions.
    """
    if isinstance(called, ast.Name):
        if called.id in _LIST_FUNCTIONS:
            yield "many"
        elif called.id in _SINGLE_VALUE_FUNCTIONS:
            yield "one"
    elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        if called.value.id == "re":
            yield "one"
        elif called.value.id in ("np", "numpy"):
            yield "many"


def _is_argument(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ARGUMENTS
