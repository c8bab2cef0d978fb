"""A Jinja environment that counts loops, calls and characters of its templates.

An operation that would get too large is refused before it is done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import wraps
from typing import Any

from jinja2 import nodes, pass_context
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from lm_eval.prompts.template_limits import TooMuchWorkError, current_budget

#: How many steps a call and a filter cost.
_CALL, _FILTER = 20, 5
#: The largest number that may be an argument of a filter or method, such as a width.
_LARGEST_ARGUMENT = 100_000
#: How many digits (in base 2) an integer may have.
_MOST_BITS = 4096


class GuardedEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose templates spend the budget that `spending` sets.

    `copied` is the environment whose filters, functions and settings it has.
    """

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(
        self, copied: ImmutableSandboxedEnvironment, finalize: Callable[[Any], Any] | None = None
    ) -> None:
        super().__init__(
            loader=copied.loader,
            undefined=copied.undefined,
            keep_trailing_newline=copied.keep_trailing_newline,
            finalize=lambda value: _spend_output(value if finalize is None else finalize(value)),
        )
        self.globals = copied.globals
        self.filters = {name: _guarded(name, one) for name, one in copied.filters.items()}
        self.filters |= {_EACH: _each, _CONCAT: _concat, _CHECKED: _checked}

    def _generate(self, source: nodes.Template, *rest: Any, **more: Any) -> str:
        """Returns the Python code of a template, in which loops and assignments are counted."""
        counted = _Counting().visit(source)
        counted.set_environment(self)
        return super()._generate(counted, *rest, **more)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Returns the result of an operator; raises `TooMuchWorkError` if it would be too large."""
        _check_operands(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Returns the result of a call; raises `TooMuchWorkError` if it would be too large."""
        # The sandbox wraps `str.format`.
        owner = getattr(getattr(__obj, "__wrapped__", __obj), "__self__", None)
        method = getattr(__obj, "__name__", "") if isinstance(owner, (str, bytes)) else ""
        given = _check_arguments(method, (owner, *args) if method else args, kwargs)
        args = given[1:] if method else given
        for value in (*args, *kwargs.values()) if isinstance(__obj, Macro) else ():
            _spend_size(value)
        current_budget().step(steps=_CALL)
        result = super().call(__context, __obj, *args, **kwargs)
        current_budget().spend(_length(result))
        return result


def _guarded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a filter that spends the budget and refuses what would get too large."""
    first = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def guarded(*args: Any, **kwargs: Any) -> Any:
        given = _check_arguments(name, args[first:], kwargs)
        result = function(*args[:first], *given, **kwargs)
        current_budget().step(_length(result), steps=_FILTER)
        return result

    return guarded


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (str, bytes, list, tuple, dict, set)) else 0


def _spend_size(value: Any) -> None:
    """Spends one character per item in nested lists and mappings, and per character of a text.

    A list that contains another one twice counts it twice, as printing it would.
    """
    budget, waiting = current_budget(), [value]
    while waiting:
        one = waiting.pop()
        budget.spend(1 + _length(one))
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, (list, tuple, set)):
            waiting += one


def _spend_output(value: Any) -> Any:
    """Returns `value`, which is about to be printed, and spends its characters."""
    if isinstance(value, str):
        current_budget().spend(len(value))
    else:
        _spend_size(value)
    return value


# -- operations that may get large ------------------------------------------------------------

#: A width of six digits or more, or one that is an argument, in `%` and in `str.format`.
_WIDE_PERCENT = re.compile(r"%[^a-zA-Z%]*?(\d{6}|\*)")
_WIDE_FORMAT = re.compile(r"\{[^{}]*:[^{}]*(\d{6}|\{)")


def _check_operands(operator: str, left: Any, right: Any) -> None:
    """Spends what an operator is going to produce; refuses a number that would be too large."""
    if operator == "+":
        current_budget().step(_length(left) + _length(right))
        return
    if operator == "%":
        if isinstance(left, str):
            _check_format(_WIDE_PERCENT, left)
            _spend_size(right)
        return
    if isinstance(left, int) and isinstance(right, int):
        digits = left.bit_length()
        bits = digits * max(right, 0) if operator == "**" else digits + right.bit_length()
        if bits > _MOST_BITS:
            raise TooMuchWorkError(f"computes a number of more than {_MOST_BITS} bits")
    elif operator == "*":
        for text, count in ((left, right), (right, left)):
            if isinstance(count, int):
                current_budget().step(_length(text) * max(count, 0))


def _check_format(wide: re.Pattern[str], text: str) -> None:
    if wide.search(text):
        raise TooMuchWorkError(f"formats a value to more than {_LARGEST_ARGUMENT} characters")


def _check_arguments(
    name: str, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Returns the arguments of a filter or of a method of a text, the text first.

    Spends the characters that it is going to produce, and refuses numbers that are too large.
    `name` is "" for other functions.
    """
    largest = _WIDEST_JSON if name == "tojson" else _LARGEST_ARGUMENT
    for number in (*args[1 if name else 0 :], *kwargs.values()):
        if isinstance(number, int) and abs(number) > largest:
            raise TooMuchWorkError(f"uses a number larger than {largest} as an argument")
    text = args[0] if name and args else None
    rest = [*args[1:], *kwargs.values()]
    if name == "join":
        return _check_join(args, rest)
    if not isinstance(text, (str, bytes)):
        if name in _PRINTING:
            _spend_size(text)
        return args
    if name == "replace" and len(rest) >= 2:
        current_budget().spend(_count(text, rest[0]) * _length(rest[1]))
    elif name in ("indent", "expandtabs", "wordwrap", "regex_replace", "translate"):
        widest = max((_width(value) for value in rest), default=8)
        current_budget().spend((len(text) + 1) * max(widest if name != "wordwrap" else 1, 1))
        if name == "wordwrap":
            current_budget().spend(len(text) * max(map(_length, rest), default=0))
    elif name in ("format", "format_map") and isinstance(text, str):
        _check_format(_WIDE_FORMAT, text)
        _check_format(_WIDE_PERCENT, text)
        for value in rest:
            _spend_size(value)
    return args


#: The largest indentation of `tojson`, which it repeats for each level.
_WIDEST_JSON = 16
#: Filters that print lists and mappings as text.
_PRINTING = frozenset(
    (
        *("e", "escape", "forceescape", "pprint", "replace", "string", "tojson", "urlencode"),
        *("xmlattr",),
    )
)


def _check_join(args: tuple[Any, ...], rest: Sequence[Any]) -> tuple[Any, ...]:
    """Returns the arguments of `join`, as a filter of a list or a method of a text.

    The items are put in a list, so that their characters can be spent.
    """
    texts = [value for value in (args[0], *rest) if isinstance(value, (str, bytes))]
    given: list[Any] = []
    for value in args:
        if isinstance(value, Iterable) and not isinstance(value, (str, bytes, list, tuple, dict)):
            value = list(value)
        if isinstance(value, (list, tuple)):
            _spend_size(value)
            current_budget().spend(len(value) * max(map(len, texts), default=0))
        given.append(value)
    return tuple(given)


def _count(text: Any, part: Any) -> int:
    """Returns how often `part` occurs in a text; an empty one between all characters."""
    return text.count(part) if isinstance(part, type(text)) and part else len(text) + 1


def _width(value: Any) -> int:
    """Returns how many characters a filter may insert for an argument: a number, text or table."""
    if isinstance(value, dict):
        return max(map(_length, value.values()), default=1)
    return value if isinstance(value, int) else _length(value)


# -- counting in templates --------------------------------------------------------------------

_EACH, _CONCAT, _CHECKED = "lm_eval_each", "lm_eval_concat", "lm_eval_checked"


@pass_context
def _each(context: Context, items: Any, size: int) -> Iterator[Any]:
    """Yields the items of a loop and counts them; `size` is the length of the loop's plain text."""
    budget = current_budget()
    for item in items:
        budget.step(size)
        yield item


@pass_context
def _concat(context: Context, parts: Sequence[Any]) -> str:
    """Returns the texts of `parts` as one: the operator `~`."""
    _spend_size(parts)
    return "".join(map(str, parts))


@pass_context
def _checked(context: Context, value: Any) -> Any:
    """Returns the value of an assignment, and spends its size."""
    current_budget().step()
    _spend_size(value)
    return value


class _Counting(NodeTransformer):
    """Makes loops, assignments and `~` of a parsed template call the filters above."""

    def visit_For(self, node: nodes.For) -> nodes.For:  # noqa: N802 (the name of the node)
        """Returns the loop over counted items."""
        size = sum(len(data.data) for data in node.find_all(nodes.TemplateData))
        inside = self.generic_visit(node)
        assert isinstance(inside, nodes.For)
        return nodes.For(
            inside.target,
            _filtered(inside.iter, _EACH, nodes.Const(size)),
            inside.body,
            inside.else_,
            inside.test,
            inside.recursive,
            lineno=node.lineno,
        )

    def visit_Assign(self, node: nodes.Assign) -> nodes.Assign:  # noqa: N802
        """Returns the assignment of a checked value."""
        inside = self.generic_visit(node)
        assert isinstance(inside, nodes.Assign)
        return nodes.Assign(inside.target, _filtered(inside.node, _CHECKED), lineno=node.lineno)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Filter:  # noqa: N802
        """Returns a filter of the tuple of the texts."""
        inside = self.generic_visit(node)
        assert isinstance(inside, nodes.Concat)
        return _filtered(nodes.Tuple(inside.nodes, "load", lineno=node.lineno), _CONCAT)


def _filtered(value: Any, name: str, *args: nodes.Expr) -> nodes.Filter:
    """Returns the node of `value|name(args)`."""
    return nodes.Filter(value, name, list(args), [], None, None, lineno=value.lineno)
