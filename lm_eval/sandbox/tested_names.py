"""Which names of the tests are the program's: found in the tests' text, before the program runs."""

from __future__ import annotations

import ast
import builtins
import symtable
import sys
from collections.abc import Iterator
from dataclasses import dataclass

#: Names by which modules that are not in the standard library are imported.
_USUAL_NAMES = {"np": "numpy", "numpy": "numpy", "pd": "pandas", "pandas": "pandas"}


@dataclass(frozen=True)
class TestedNames:
    """The names that tests use without defining them.

    Attributes:
        wanted: names that the program must define.
        modules: names that must be modules, with the module's name. They are bound to our own copy,
            whatever the program binds them to.
        imports: the modules that the tests import: module, attribute or "", name.
    """

    wanted: list[str]
    modules: dict[str, str]
    imports: list[tuple[str, str, str]]


def names_of(tree: ast.Module, source: str) -> TestedNames:
    """Returns the names that tests use.

    A built-in name (`abs`, `sum`) stays the built-in function, even if the program defines it,
    since tests compare by such functions. It is the program's only if the tests use no other name
    that the program could define: then it must be the one that is tested.
    """
    free = free_names(source)
    modules = {
        name: _USUAL_NAMES.get(name, name)
        for name in free & _only_attribute_bases(tree)
        if name in sys.stdlib_module_names or name in _USUAL_NAMES
    }
    own = {name for name in free if not hasattr(builtins, name)} - set(modules)
    if not own:
        own = {name for name in _called(tree) if name in free}
    return TestedNames(sorted(own), modules, list(imports_of(tree)))


def free_names(source: str) -> set[str]:
    """Returns the global names that the code refers to and never binds."""
    top = symtable.symtable(source, "<tests>", "exec")
    bound = {
        symbol.get_name()
        for symbol in top.get_symbols()
        if symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()
    }
    referred = {symbol.get_name() for symbol in top.get_symbols() if symbol.is_referenced()}
    tables = list(top.get_children())
    while tables:
        table = tables.pop()
        tables += table.get_children()
        for symbol in table.get_symbols():
            if symbol.is_global():
                (bound if symbol.is_declared_global() and symbol.is_assigned() else referred).add(
                    symbol.get_name()
                )
    return referred - bound


def _only_attribute_bases(tree: ast.Module) -> set[str]:
    """Returns the names that occur only before a dot, such as `math` in `math.sqrt`."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bases = {
        id(node.value): node.value.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    return set(bases.values()) - {name.id for name in names if id(name) not in bases}


def _called(tree: ast.Module) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


def imports_of(tree: ast.Module) -> Iterator[tuple[str, str, str]]:
    """Yields what the top level of a module imports: module, attribute or "", and the name."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield (alias.name if alias.asname else top), "", alias.asname or top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                if alias.name != "*":
                    yield node.module, alias.name, alias.asname or alias.name
