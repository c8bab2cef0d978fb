"""Imports Python files of task folders under names by which they can import their siblings."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

from lm_eval.config.regular_file import read_regular
from lm_eval.config.source_imports import PACKAGE_PREFIX, install_finder, spec_of
from lm_eval.errors import ConfigError

#: Imported modules by file, with the file's modification time: an edited file is imported again.
_loaded: dict[Path, tuple[int, ModuleType]] = {}


def run_modules_that_register(names: Iterable[str], folder: Path, root: Path | None = None) -> None:
    """Imports the Python files in `folder` that may register the given names.

    A task file may use a filter or metric that Python code in its folder registers, without
    referring to that code. Only files that quote one of `names` and contain `register_` are run.
    Errors in their code are not caught. `root` is that of `load_python_file`.
    """
    for path, text in modules_mentioning(names, folder):
        if "register_" in text:
            load_python_file(path.resolve(), root)


def modules_mentioning(names: Iterable[str], folder: Path) -> Iterator[tuple[Path, str]]:
    """Yields the path and source text of the Python files in `folder` that quote one of `names`.

    Sorted by path; subfolders are not searched. None of the files is run.
    """
    quoted = [f"{quote}{name}{quote}" for name in names for quote in ("'", '"')]
    for path in sorted(folder.glob("*.py")) if quoted else []:
        try:
            text = read_regular(path).decode("utf-8", "replace")
        except ConfigError:
            continue  # nothing can be imported from it
        if any(name in text for name in quoted):
            yield path, text


def load_python_file(path: Path, root: Path | None = None) -> ModuleType:
    """Imports a Python file and returns the module.

    It is compiled from its source; a `__pycache__` in its folder is not used. If the file has not
    changed since it was last imported, returns that module and runs nothing.
    `root` is the folder up to which its relative imports can reach; by default the file's own
    folder. Raises whatever its code raises, and `ImportError` if it is not named like a Python
    file.
    """
    modified = path.stat().st_mtime_ns
    known = _loaded.get(path)
    if known is not None and known[0] == modified:
        return known[1]
    name = _module_name(path, root)
    install_finder()
    spec = spec_of(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file: its name must end in .py")
    module = importlib.util.module_from_spec(spec)
    replaced = sys.modules.get(name)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if replaced is None:
            del sys.modules[name]
        else:
            sys.modules[name] = replaced
        raise
    _loaded[path] = (modified, module)
    return module


def _module_name(path: Path, root: Path | None) -> str:
    """Returns the name under which to import a file; it determines what relative imports find.

    For a file in a folder whose subfolders are importable as `lm_eval.tasks.<subfolder>`, it is
    that name. If another such folder has a subfolder or module of the same name, or a module of
    this name exists, and for any other file, it is a name in a package of its own that stands for
    `root`. So two files `utils.py` are never confused, nor are their siblings.
    """
    if (
        root is None
        or not path.is_relative_to(root)
        or "." in "".join(path.relative_to(root).parts[:-1])
    ):
        root = path.parent  # a folder with a dot in its name cannot be a package
    parts = path.relative_to(root).with_suffix("").parts
    name = ".".join(("lm_eval", "tasks", *parts))
    roots = [Path(folder).resolve() for folder in _importable_folders()]
    known = sys.modules.get(name)
    if (
        root in roots
        and (known is None or getattr(known, "__file__", None) == str(path))
        and not any(_has(other, parts[0]) for other in roots if other != root)
    ):
        return name
    package = _package_of(root)
    return ".".join((package, *parts))


def _has(folder: Path, name: str) -> bool:
    return (folder / name).is_dir() or (folder / f"{name}.py").is_file()


def _package_of(root: Path) -> str:
    """Returns the name of a package whose modules are the Python files in `root`.

    The package is created in `sys.modules` if it is not there; nothing is written to disk.
    """
    name = f"{PACKAGE_PREFIX}{hashlib.sha256(str(root).encode()).hexdigest()[:12]}"
    if name not in sys.modules:
        package = ModuleType(name, f"The Python files in {root}.")
        package.__path__ = [str(root)]
        sys.modules[name] = package
    return name


def _importable_folders() -> Sequence[str]:
    """Returns the folders in which submodules of `lm_eval.tasks` are searched for.

    Empty if `lm_eval.tasks` has not been imported.
    """
    tasks = sys.modules.get("lm_eval.tasks")
    return list(tasks.__path__) if tasks is not None else []
