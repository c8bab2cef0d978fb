"""The functions of a given text, such as a prompt, that tests call instead of the program's.

A program that completes a given text can define the functions of that text again. Tests that find
out by such a function what is right would then trust the program. So they get the function of the
given text.
"""

from __future__ import annotations

import ast
import builtins
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from lm_eval.sandbox.tested_names import free_names, imports_of

_FILE = "<given>"
_THIRD_PARTY = ("numpy", "pandas")


def given_functions(text: str) -> dict[str, Callable[..., Any]]:
    """Returns the complete, self-contained functions that a text defines before its last one.

    The last definition at the top level is what the program has to complete, and is left out. So is
    a function without a body, one that is defined twice, and one that uses anything but built-in
    names, usual modules and other functions of this kind: such a function may depend on what the
    program makes of its own variables and classes. Empty if the text is not Python.
    """
    statements = _before_last_definition(text)
    own = [node for node in statements if _is_import(node)]
    imported = {name for _, _, name in imports_of(ast.Module(own, []))}
    bound = Counter(name for node in statements for name in _bound(node))
    functions = {
        node.name: node
        for node in statements
        if isinstance(node, ast.FunctionDef) and _is_complete(node) and bound[node.name] == 1
    }
    usable = {name for name in imported if bound[name] == 1}
    while True:
        known = usable | functions.keys()
        kept = {name: node for name, node in functions.items() if _uses_only(node, known)}
        if len(kept) == len(functions):
            break
        functions = kept
    if not functions:
        return {}
    tree = ast.Module([*own, *functions.values()], [])
    namespace: dict[str, Any] = {}
    exec(compile(tree, _FILE, "exec", dont_inherit=True), namespace)
    return {name: namespace[name] for name in functions}


def _before_last_definition(text: str) -> list[ast.stmt]:
    """Returns the statements before the last function or class at the top level of a text.

    What follows may be incomplete. Empty if there is no such definition, or what is before it is
    not valid.
    """
    lines = text.splitlines(keepends=True)
    starts = [
        i for i, line in enumerate(lines) if line.startswith(("def ", "class ", "async def "))
    ]
    if not starts:
        return []
    last = starts[-1]
    while last and lines[last - 1].startswith("@"):
        last -= 1
    try:
        return ast.parse("".join(lines[:last]), _FILE).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def _is_import(node: ast.stmt) -> bool:
    """Returns whether a statement imports from usual modules alone."""
    if isinstance(node, ast.Import):
        modules = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom) and not node.level:
        modules = [str(node.module)]
    else:
        return False
    tops = {name.partition(".")[0] for name in modules} - set(_THIRD_PARTY)
    return tops <= sys.stdlib_module_names


def _bound(node: ast.stmt) -> Iterator[str]:
    """Yields the names that a statement at the top level may bind, each at least once."""
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield node.name
        return
    for inside in ast.walk(node):
        if isinstance(inside, ast.Name) and isinstance(inside.ctx, (ast.Store, ast.Del)):
            yield inside.id
        elif isinstance(inside, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield inside.name
        elif isinstance(inside, (ast.Import, ast.ImportFrom)):
            yield from (name for _, _, name in imports_of(ast.Module([inside], [])))


def _is_complete(node: ast.FunctionDef) -> bool:
    """Returns whether a function has more than a docstring, `pass`, `...` or one `raise`."""
    body = [
        part
        for part in node.body
        if not isinstance(part, ast.Pass)
        and not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
    ]
    return bool(body) and not isinstance(body[0], ast.Raise)


def _uses_only(node: ast.FunctionDef, known: set[str]) -> bool:
    """Returns whether a function uses built-in names and `known` ones alone, and changes none."""
    if any(isinstance(inside, ast.Global) for inside in ast.walk(node)):
        return False
    used = free_names(ast.unparse(node))
    return all(name in known or hasattr(builtins, name) for name in used)
