"""Tests that there are no import cycles, including imports for type annotations."""

from __future__ import annotations

import ast
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


def import_graph(modules: dict[str, Path]) -> Graph:
    """Returns which modules each one imports, at any place of its file.

    Imports inside functions and under `TYPE_CHECKING` count. `from package import name` is an
    import of the submodule where there is one of that name, else of the package.
    """
    graph: Graph = {}
    for module, path in modules.items():
        used = graph.setdefault(module, set())
        package = module if path.name == "__init__.py" else module.rpartition(".")[0]
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                used |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, node.module or ""] if node.level else [node.module or ""])
                base = base.rstrip(".")
                names = {f"{base}.{alias.name}" for alias in node.names}
                used |= {name if name in modules else base for name in names}
        used &= modules.keys() - {module}
    return graph


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
