"""How a metric function wants to be called.

Three conventions are in use. Published task folders take lists of one,
`fn(references=[gold], predictions=[answer])`, as Hugging Face's `evaluate` does; the document on
custom metrics takes the values themselves, `fn(references=gold, predictions=answer)`; the oldest
take one pair. The signature tells the last from the others. Between the first two the function's
own text decides: one that asks of an argument what no list can do (`predictions.strip()`,
`float(references)`) means the values; any other gets lists.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

ARGUMENTS = ("references", "predictions")

_OF_ONE_VALUE = {"float", "int", "complex", "Decimal", "Fraction"}
_OF_MANY = {
    *("zip", "enumerate", "len", "list", "tuple", "set", "sorted", "map", "filter", "iter", "next"),
    *("sum", "min", "max", "any", "all", "isinstance"),
}


class Convention(Enum):
    """What a metric function is given."""

    LISTS = "references=[gold], predictions=[answer]"
    VALUES = "references=gold, predictions=answer"
    PAIR = "[gold, answer]"


def convention_of(function: Callable[..., Any]) -> Convention:
    """How to call a function; what cannot be looked into gets lists."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return Convention.LISTS
    any_keyword = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not any_keyword and not set(ARGUMENTS) <= parameters.keys():
        return Convention.PAIR
    return Convention.VALUES if _means_values(function) else Convention.LISTS


def _means_values(function: Callable[..., Any]) -> bool:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function))))
    except (OSError, TypeError, SyntaxError, ValueError):
        return False
    uses = [use for node in ast.walk(tree) for use in _uses(node)]
    return "one" in uses and "many" not in uses


def _uses(node: ast.AST) -> Iterator[str]:
    """Whether a place in the code treats an argument as `one` value or as `many`."""
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
        yield from _use_of_call(node.func)


def _use_of_call(called: ast.expr) -> Iterator[str]:
    if isinstance(called, ast.Name):
        if called.id in _OF_MANY:
            yield "many"
        elif called.id in _OF_ONE_VALUE:
            yield "one"
    elif isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        if called.value.id == "re":
            yield "one"
        elif called.value.id in ("np", "numpy"):
            yield "many"


def _is_argument(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ARGUMENTS
