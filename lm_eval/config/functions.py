"""Resolves `!function file.name` references of YAML files to Python objects, on demand."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lm_eval.errors import ConfigError, at, suggestion
from lm_eval.extras import remedy

#: Imported modules by file, with the file's modification time: an edited file is imported again.
_loaded: dict[Path, tuple[int, ModuleType]] = {}


@dataclass(frozen=True)
class FunctionRef:
    """A `!function` value of a YAML file whose Python object has not been looked up yet.

    `qualified_name` is what follows `!function`, such as `utils.process_docs`. `folder` is the
    folder in which the module is searched for; `file` and `line` are where the value is written.
    """

    qualified_name: str
    folder: Path
    file: Path
    line: int

    @property
    def name(self) -> str:
        """The last part of `qualified_name`, without the module."""
        return self.qualified_name.rpartition(".")[2]

    def resolve(self) -> Any:
        """Imports the module, which runs code from the task folder, and returns the object.

        Raises `ConfigError` if the module cannot be imported or does not define the name.
        """
        where = f"{at(self.file, self.line)}: !function {self.qualified_name}"
        module_name, _, name = self.qualified_name.rpartition(".")
        if not module_name:
            raise ConfigError(
                f"{where}: write it as file.name, where file.py is in the folder of the YAML file."
            )
        path = self.folder / (module_name.replace(".", "/") + ".py")
        module = self._import(path, module_name, where)
        if not hasattr(module, name):
            names = [other for other in vars(module) if not other.startswith("_")]
            raise ConfigError(f"{where}: {path} has no {name!r}.{suggestion(name, names)}")
        return getattr(module, name)

    def _import(self, path: Path, module_name: str, where: str) -> ModuleType:
        """Returns the module in the file `path`, or without such a file the module `module_name`.

        Raises `ConfigError`, which begins with `where`, if it cannot be imported.
        """
        try:
            if path.is_file():
                return load_python_file(path.resolve())
            return importlib.import_module(module_name)
        except ImportError as error:
            if path.is_file():
                reason = " ".join(str(error).split())
                advice = f": {remedy(error)}." if remedy(error) else "."
                raise ConfigError(
                    f"{where}: {path} needs a module that cannot be imported ({reason}){advice}"
                ) from error
            raise ConfigError(
                f"{where}: there is no file {path}, and no module {module_name!r} can be imported."
            ) from error
        except (Exception, SystemExit) as error:  # some modules exit if a program is missing
            raise ConfigError(
                f"{where}: running {path} failed ({type(error).__name__}: {error})."
            ) from error


def resolve_functions(value: Any) -> Any:
    """Returns a copy of nested configuration values with every `!function` resolved.

    Dictionaries and lists are copied; other values are not. This runs code from task folders; see
    `FunctionRef.resolve`. Raises `ConfigError` if a function cannot be imported.
    """
    if isinstance(value, FunctionRef):
        return value.resolve()
    if isinstance(value, dict):
        return {key: resolve_functions(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_functions(item) for item in value]
    return value


def run_modules_that_register(names: Iterable[str], folder: Path) -> None:
    """Imports the Python files in `folder` that may register the given names.

    A task file may use a filter or metric that Python code in its folder registers, without
    referring to that code. Only files that quote one of `names` and contain `register_` are run.
    Errors in their code are not caught.
    """
    for path, text in modules_mentioning(names, folder):
        if "register_" in text:
            load_python_file(path.resolve())


def modules_mentioning(names: Iterable[str], folder: Path) -> Iterator[tuple[Path, str]]:
    """Yields the path and source text of the Python files in `folder` that quote one of `names`.

    Sorted by path; subfolders are not searched. None of the files is run.
    """
    quoted = [f"{quote}{name}{quote}" for name in names for quote in ("'", '"')]
    for path in sorted(folder.glob("*.py")) if quoted else []:
        text = path.read_text(encoding="utf-8", errors="replace")
        if any(name in text for name in quoted):
            yield path, text


def load_python_file(path: Path) -> ModuleType:
    """Imports a Python file and returns the module.

    If the file has not changed since it was last imported, returns that module and runs nothing.
    Raises whatever its code raises, and `ImportError` if it is not named like a Python file.
    """
    modified = path.stat().st_mtime_ns
    known = _loaded.get(path)
    if known is not None and known[0] == modified:
        return known[1]
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
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


def _module_name(path: Path) -> str:
    """Returns the name under which to import a file.

    For a file in a task folder it is `lm_eval.tasks.<folder>.<file>`, so that the file can import
    its siblings. For any other file, and if another file has that name already, it is a unique name
    made from its path.
    """
    for root in _task_roots():
        try:
            parts = path.with_suffix("").relative_to(Path(root).resolve()).parts
        except ValueError:
            continue
        name = ".".join(("lm_eval", "tasks", *parts))
        known = sys.modules.get(name)
        if known is None or getattr(known, "__file__", None) == str(path):
            return name
    digest = hashlib.sha256(str(path).encode()).hexdigest()[:12]
    return f"lm_eval_task_{digest}_{path.stem}"


def _task_roots() -> Sequence[str]:
    """Returns the folders in which submodules of `lm_eval.tasks` are searched for.

    Empty if `lm_eval.tasks` has not been imported.
    """
    tasks = sys.modules.get("lm_eval.tasks")
    return list(tasks.__path__) if tasks is not None else []
