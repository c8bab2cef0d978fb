"""Tests that there are no import cycles, including imports for type annotations."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
Graph = dict[str, set[str]]


def modules_of(root: Path) -> dict[str, Path]:
    """Returns the file of each module of lm_eval, by name.

    The folders of benchmarks below `tasks/` are data; they are loaded by path.
    """
    found = {}
    for path in (root / "lm_eval").rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if parts[:2] == ("lm_eval", "tasks") and len(parts) > 3:
            continue
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def import_graph(modules: dict[str, Path], *, at_import: bool = False) -> Graph:
    """Returns which modules each one imports, at any place of its file.

    Imports inside functions and under `TYPE_CHECKING` count. `from package import name` is an
    import of the submodule where there is one of that name, else of the package. With `at_import`,
    only what runs when the module is imported counts, but so do the packages that an imported
    module is in.
    """
    graph: Graph = {}
    for module, path in modules.items():
        used = graph.setdefault(module, set())
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        tree = ast.parse(path.read_text(encoding="utf-8"))
        for node in run_at_import(tree) if at_import else ast.walk(tree):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, node.module or ""] if node.level else [node.module or ""])
                base = base.rstrip(".")
                names = {f"{base}.{alias.name}" for alias in node.names}
                used |= {name if name in modules else base for name in names}
        if at_import:  # the packages that the module itself is in are there already
            used |= {above for name in used for above in packages_of(name)} - packages_of(module)
        used &= modules.keys() - {module}
    return graph


def run_at_import(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the nodes that run when a module is imported."""
    later = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
    for node in ast.iter_child_nodes(tree):
        for_types = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not isinstance(node, later) and not for_types:
            yield node
            yield from run_at_import(node)


def packages_of(module: str) -> set[str]:
    """Returns the names of the packages that a module is in: a and a.b for a.b.c."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts))}


def cycles(graph: Graph) -> list[list[str]]:
    """Returns the groups of modules that reach each other (strongly connected components)."""

    def reached(start: str) -> set[str]:
        found: set[str] = set()
        left = [start]
        while left:
            for module in graph[left.pop()] - found:
                found.add(module)
                left.append(module)
        return found

    reach = {module: reached(module) for module in graph}
    groups = {
        tuple(sorted(other for other in reach[module] if module in reach[other]))
        for module in graph
        if module in reach[module]
    }
    return [list(group) for group in sorted(groups)]


def test_modules_do_not_import_each_other_in_a_circle() -> None:
    assert cycles(import_graph(modules_of(ROOT))) == []


def test_modules_do_not_import_each_other_through_the_packages_they_are_in() -> None:
    assert cycles(import_graph(modules_of(ROOT), at_import=True)) == []


def test_a_circle_through_a_package_is_found(tmp_path: Path) -> None:
    package = tmp_path / "lm_eval" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from lm_eval.other import name", encoding="utf-8")
    (package / "inner.py").write_text("import lm_eval.package", encoding="utf-8")
    (tmp_path / "lm_eval" / "other.py").write_text("import lm_eval.package.inner", encoding="utf-8")
    modules = modules_of(tmp_path)
    assert cycles(import_graph(modules, at_import=True)) == [
        ["lm_eval.other", "lm_eval.package", "lm_eval.package.inner"]
    ]


def test_a_circle_is_found_wherever_its_imports_stand(tmp_path: Path) -> None:
    package = tmp_path / "lm_eval"
    package.mkdir()
    sources = {
        "__init__": "",
        "a": "from lm_eval import b",
        "b": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import lm_eval.c",
        "c": "def later():\n    from .a import name",
        "d": "from lm_eval.a import name",
    }
    for name, source in sources.items():
        (package / f"{name}.py").write_text(source, encoding="utf-8")
    found = cycles(import_graph(modules_of(tmp_path)))
    assert found == [["lm_eval.a", "lm_eval.b", "lm_eval.c"]]
