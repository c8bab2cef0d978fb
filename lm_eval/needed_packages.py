"""Finds packages that the code of a task imports when it scores, and that are not installed.

Functions often import a package in their body, so that a missing one would be noticed only when the
model has answered everything. The source of the functions is read instead; nothing is run.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from lm_eval.api.task import Task
from lm_eval.errors import ConfigError
from lm_eval.extras import remedy

#: The packages of lm_eval whose functions are read too, because tasks call them.
_OWN = ("lm_eval.tasks.", "lm_eval.helpers.", "lm_eval.metrics.", "lm_eval.filters.")
#: Types of values in a configuration that are not, and do not contain, functions.
_PLAIN = frozenset({str, int, float, bool, type(None)})
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
#: Methods of a task that are called only when its answers are scored.
_METHODS = ("process_results", "aggregation", "higher_is_better")


def check_packages(name: str, task: Task) -> None:
    """Raises `ConfigError` if the scoring of a task needs a package that is not installed.

    `name` is that of the task. Imports in a `try` block that catches `ImportError` do not count.
    """
    for function in _functions_of(task):
        for place, module in _missing(function):
            error = ModuleNotFoundError(f"No module named {module!r}", name=module)
            raise ConfigError(
                f"task {name!r}: its function {place} imports {module!r}, which is not installed: "
                f"{remedy(error)}. Nothing has been run."
            )


def _functions_of(task: Task) -> Iterator[Callable[..., Any]]:
    """Yields the functions and filter classes that scoring a task calls."""
    yield from _callables(vars(task.config) if hasattr(task.config, "__dict__") else {})
    yield from (one for one in task.aggregation().values() if callable(one))
    for make in task.filter_steps():
        yield make.func if isinstance(make, partial) else make
    for method in _METHODS:
        yield getattr(type(task), method)


def _callables(value: Any) -> Iterator[Callable[..., Any]]:
    """Yields the functions in a task's configuration, at any depth."""
    if type(value) in _PLAIN:  # nearly all values
        return
    if isinstance(value, Mapping):
        for one in value.values():
            yield from _callables(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _callables(one)
    elif isinstance(value, (FunctionType, partial, type)):
        yield value


@lru_cache(maxsize=4096)
def _missing(function: Callable[..., Any]) -> list[tuple[str, str]]:
    """Returns `(function, module)` for modules that a function, or those it calls, lack."""
    waiting: list[Any] = [function]
    found: list[tuple[str, str]] = []
    seen: set[int] = set()
    while waiting:
        given = waiting.pop()
        given = given.func if isinstance(given, partial) else inspect.unwrap(given)
        if id(given) in seen or not isinstance(given, (FunctionType, type)):
            continue
        seen.add(id(given))
        module = sys.modules.get(given.__module__)
        file = getattr(module, "__file__", None)
        if module is None or not file or not _is_read(given.__module__, file):
            continue
        definition = _definitions(file).get(given.__qualname__)
        if definition is None:
            continue
        for imported in _imported(definition):
            if _is_missing(imported, Path(file).parent):
                place = f"{given.__qualname__} ({Path(file).name}:{definition.lineno})"
                found.append((place, imported))
        names = {node.id for node in ast.walk(definition) if isinstance(node, ast.Name)}
        waiting += [vars(module)[name] for name in names if name in vars(module)]
        for node in ast.walk(definition):  # `utils.function`
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                owner = vars(module).get(node.value.id)
                if isinstance(owner, ModuleType):
                    waiting.append(getattr(owner, node.attr, None))
        waiting = [one for one in waiting if isinstance(one, (FunctionType, partial, type))]
    return found


def _is_read(module: str, file: str) -> bool:
    """Returns whether the functions of a module are read: those of tasks and of this package."""
    if module.startswith("lm_eval."):
        return module.startswith(_OWN)
    path = Path(file)
    return "site-packages" not in path.parts and not path.is_relative_to(_STANDARD_LIBRARY)


_STANDARD_LIBRARY = Path(ast.__file__).parent


@lru_cache(maxsize=256)
def _definitions(file: str) -> dict[str, _Definition]:
    """Returns the functions and classes of a Python file, by qualified name."""
    try:
        tree = ast.parse(Path(file).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return {}
    found: dict[str, _Definition] = {}

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                found[f"{prefix}{child.name}"] = child
                inside = "." if isinstance(child, ast.ClassDef) else ".<locals>."
                visit(child, f"{prefix}{child.name}{inside}")

    visit(tree, "")
    return found


def _imported(definition: _Definition) -> Iterator[str]:
    """Yields the modules that a function imports, without those whose absence it handles."""
    waiting: list[ast.AST] = [definition]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Try) and any(_handles_import(one) for one in node.handlers):
            waiting += [*node.handlers, *node.orelse, *node.finalbody]
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            yield node.module
        waiting += ast.iter_child_nodes(node)


def _handles_import(handler: ast.ExceptHandler) -> bool:
    if handler.type is None:
        return True
    names = {node.id for node in ast.walk(handler.type) if isinstance(node, ast.Name)}
    return bool(names & {"ImportError", "ModuleNotFoundError", "Exception", "BaseException"})


@lru_cache(maxsize=1024)
def _is_missing(module: str, folder: Path) -> bool:
    """Returns whether a module is neither installed nor a file beside the one that imports it."""
    top = module.partition(".")[0]
    if top in sys.modules:
        return False
    try:
        if (folder / top).exists() or (folder / f"{top}.py").exists():
            return False
        return importlib.util.find_spec(top) is None
    except OSError:  # the name is too long for a file
        return True
    except (ImportError, ValueError):
        return False
