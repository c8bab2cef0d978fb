"""Recognizes templates whose cost is bounded by their own length and that of the document."""

from __future__ import annotations

from collections.abc import Sequence

from jinja2 import nodes

#: Methods whose result is no larger than the texts and lists that they are given.
_PLAIN_METHODS = frozenset(
    (
        *("capitalize", "casefold", "count", "endswith", "find", "get", "index", "isalnum"),
        *("isalpha", "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle"),
        *("isupper", "items", "join", "keys", "lower", "lstrip", "partition", "removeprefix"),
        *("removesuffix", "rfind", "rindex", "rpartition", "rsplit", "rstrip", "split"),
        *("splitlines", "startswith", "strip", "swapcase", "title", "upper", "values"),
    )
)
_PLAIN_FILTERS = frozenset(
    (
        *("abs", "capitalize", "choice", "count", "d", "default", "dictsort", "e", "escape"),
        *("first", "float", "int", "items", "join", "last", "length", "list", "lower", "max"),
        *("min", "most_frequent", "reverse", "safe", "sort", "string", "sum", "title", "trim"),
        *("unique", "upper", "wordcount"),
    )
)
_PLAIN_FUNCTIONS = frozenset(
    {"choice_labels", "gold_index", "labelled", "listed", "namespace", "zip"}
)
_UNBOUNDED_NODES = (
    *(nodes.For, nodes.Macro, nodes.CallBlock, nodes.FilterBlock, nodes.Mul, nodes.Pow, nodes.Mod),
    *(nodes.Block, nodes.Extends, nodes.Include, nodes.Import, nodes.FromImport),
)
#: How many times its input a plain template may be larger, by the variables that it sets.
_MOST_GROWTH = 1000


def is_plain(tree: nodes.Template) -> bool:
    """Returns whether the cost of a parsed template is bounded by its own length and the document.

    A plain template has no loops, and only operations that cannot multiply the size of a text.
    """
    growth = 1
    for node in tree.find_all(nodes.Node):
        if isinstance(node, _UNBOUNDED_NODES):
            return False
        if isinstance(node, nodes.Filter) and not _is_plain_filter(node):
            return False
        if isinstance(node, nodes.Call) and not _is_plain_call(node):
            return False
        if isinstance(node, (nodes.Assign, nodes.AssignBlock)):
            growth *= max(1, sum(1 for _ in node.find_all((nodes.Name, nodes.Getattr))))
            if growth > _MOST_GROWTH:
                return False
    return True


def _is_plain_filter(node: nodes.Filter) -> bool:
    return node.name in _PLAIN_FILTERS or _shrinks(node.name, node.args)


def _is_plain_call(node: nodes.Call) -> bool:
    if isinstance(node.node, nodes.Name):
        return node.node.name in _PLAIN_FUNCTIONS
    if not isinstance(node.node, nodes.Getattr):
        return False
    return node.node.attr in _PLAIN_METHODS or _shrinks(node.node.attr, node.args)


def _shrinks(name: str, arguments: Sequence[nodes.Node]) -> bool:
    """Returns whether this is `replace` with a constant that is no longer than what it replaces."""
    texts = [a.value for a in arguments if isinstance(a, nodes.Const) and isinstance(a.value, str)]
    return name == "replace" and len(texts) == 2 and 0 < len(texts[0]) >= len(texts[1])
