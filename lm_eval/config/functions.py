"""Find the Python object that `!function file.name` means, and only when it is asked for."""

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

#: Modules already executed, with the time of the file they came from: an edited file is run anew.
_loaded: dict[Path, tuple[int, ModuleType]] = {}


@dataclass(frozen=True)
class FunctionRef:
    """A `!function` value not yet looked up: where it is written, and what it names."""

    qualified_name: str
    folder: Path
    file: Path
    line: int

    @property
    def name(self) -> str:
        return self.qualified_name.rpartition(".")[2]

    def resolve(self) -> Any:
        """Import the module and return the object; this runs code from the task folder."""
        where = f"{at(self.file, self.line)}: !function {self.qualified_name}"
        module_name, _, name = self.qualified_name.rpartition(".")
        if not module_name:
            raise ConfigError(
                f"{where}: write it as file.name, where file.py stands beside the YAML file."
            )
        path = self.folder / (module_name.replace(".", "/") + ".py")
        module = self._import(path, module_name, where)
        if not hasattr(module, name):
            names = [other for other in vars(module) if not other.startswith("_")]
            raise ConfigError(f"{where}: {path} has no {name!r}.{suggestion(name, names)}")
        return getattr(module, name)

    def _import(self, path: Path, module_name: str, where: str) -> ModuleType:
        try:
            if path.is_file():
                return _load_module(path.resolve())
            return importlib.import_module(module_name)
        except ImportError as error:
            if path.is_file():
                said = " ".join(str(error).split())
                advice = f": {remedy(error)}." if remedy(error) else "."
                raise ConfigError(
                    f"{where}: {path} needs a module that cannot be imported ({said}){advice}"
                ) from error
            raise ConfigError(f"{where}: there is no file {path}.") from error
        except (Exception, SystemExit) as error:  # some modules leave when a program is missing
            raise ConfigError(
                f"{where}: running {path} failed ({type(error).__name__}: {error})."
            ) from error


def resolve_functions(value: Any) -> Any:
    """A copy of a configuration value with every `!function` replaced by its object."""
    if isinstance(value, FunctionRef):
        return value.resolve()
    if isinstance(value, dict):
        return {key: resolve_functions(item) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_functions(item) for item in value]
    return value


def run_modules_that_register(names: Iterable[str], folder: Path) -> None:
    """Run the Python files of a folder that speak of some names, so that they can register them.

    A task file may name a filter or metric that the code beside it registers.
    """
    for path, text in modules_mentioning(names, folder):
        if "register_" in text:
            _load_module(path.resolve())


def modules_mentioning(names: Iterable[str], folder: Path) -> Iterator[tuple[Path, str]]:
    """The Python files of a folder that quote some of the names, with their text; none is run."""
    quoted = [f"{quote}{name}{quote}" for name in names for quote in ("'", '"')]
    for path in sorted(folder.glob("*.py")) if quoted else []:
        text = path.read_text(encoding="utf-8", errors="replace")
        if any(name in text for name in quoted):
            yield path, text


def _load_module(path: Path) -> ModuleType:
    modified = path.stat().st_mtime_ns
    known = _loaded.get(path)
    if known is not None and known[0] == modified:
        return known[1]
    name = _module_name(path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
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
    """`lm_eval.tasks.folder.file` for a file under a task root, so that its own imports of
    siblings work; a name of its own for any other file.
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
    tasks = sys.modules.get("lm_eval.tasks")
    return list(tasks.__path__) if tasks is not None else []
