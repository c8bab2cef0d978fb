"""Resolves `!function file.name` references of YAML files to Python objects, on demand."""

from __future__ import annotations

import importlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lm_eval.config.python_files import load_python_file
from lm_eval.config.regular_file import is_regular
from lm_eval.config.source_imports import without_current_folder
from lm_eval.errors import ConfigError, at, raise_interrupt, suggestion
from lm_eval.extras import remedy


@dataclass(frozen=True)
class FunctionRef:
    """A `!function` value of a YAML file whose Python object has not been looked up yet.

    `qualified_name` is what follows `!function`: a module and a name in it, such as
    `utils.process_docs`. The module is given by its path, relative to `folder` and without the
    ending `.py`; its parts are separated by slashes or dots (`../utils`, `sub/utils`, `sub.utils`).
    Without such a file, a name with dots is that of an importable module, not of the current
    folder. `file` and `line` are where the value is written.
    """

    qualified_name: str
    folder: Path
    file: Path
    line: int

    @property
    def module(self) -> str:
        """The part of `qualified_name` that names the module; "" if there is none."""
        module, _, name = self.qualified_name.rpartition(".")
        return module if name.isidentifier() else ""

    @property
    def name(self) -> str:
        """The last part of `qualified_name`, without the module."""
        return self.qualified_name.rpartition(".")[2]

    @property
    def where(self) -> str:
        """The file and line of the reference and its text, with which a message begins."""
        return f"{at(self.file, self.line)}: !function {self.qualified_name}"

    @property
    def is_path(self) -> bool:
        """Whether the module can only be a file, as in `../utils.f`, not an importable module."""
        return "/" in self.module or self.module.startswith(".")

    @property
    def path(self) -> Path:
        """The Python file that the reference means; it may not exist.

        Dots in the name of the module separate folders, as in the published harness, unless only
        a file with these dots in its path exists.
        """
        if "/" in self.module:
            steps = self.module.split("/")
        else:  # leading dots as in a relative import of Python: `..utils` is `../utils`
            name = self.module.lstrip(".")
            steps = [".."] * (len(self.module) - len(name) - 1) + [name]
        dotted = self._normalized(
            "/".join(s if s in (".", "..") else s.replace(".", "/") for s in steps)
        )
        written = self._normalized("/".join(steps))
        return written if is_regular(written) and not is_regular(dotted) else dotted

    def _normalized(self, module: str) -> Path:
        # Not `Path.resolve`: a link in the folder belongs to it, wherever it leads.
        return Path(os.path.normpath(self.folder / f"{module}.py"))

    def resolve(self, root: Path | None = None) -> Any:
        """Imports the module, which runs code from the task folder, and returns the object.

        `root` is the folder of task files that the YAML file belongs to; see `YamlFile.root`. It
        must contain the module, and relative imports of the module reach up to it. If the YAML file
        is not in it, or if it is None, the nearest folder that contains both file and module is
        used. Raises `ConfigError` if the module cannot be imported or does not define the name.
        """
        self.check(root)
        module = self._import(root)
        if not hasattr(module, self.name):
            names = [other for other in vars(module) if not other.startswith("_")]
            raise ConfigError(
                f"{self.where}: {self.path} has no {self.name!r}.{suggestion(self.name, names)}"
            )
        return getattr(module, self.name)

    def check(self, root: Path | None) -> None:
        """Raises `ConfigError` if the reference is malformed or means a file outside `root`.

        Runs nothing. A missing file is not noticed.
        """
        if not self.module or not all(map(_is_complete, self._parts())):
            raise ConfigError(
                f"{self.where}: write it as file.name, where file.py is in the folder of the YAML "
                "file, or as ../file.name or folder/file.name for a file in another folder."
            )
        inside = (
            root is None or not self.file.is_relative_to(root) or self.path.is_relative_to(root)
        )
        if not inside:
            raise ConfigError(
                f"{self.where}: {self.path} is outside {root}, the folder of task files that this "
                "file belongs to. Move the module into that folder, or use a folder that contains "
                "both (--include_path)."
            )

    def _parts(self) -> list[str]:
        """Returns the parts of the module's path: names of folders, and that of the file last."""
        if "/" in self.module:
            return self.module.removeprefix("/").split("/")
        return [self.module.lstrip(".")]

    def _import(self, root: Path | None) -> ModuleType:
        """Returns the module in the file `path`, or without such a file the module `module`.

        Raises `ConfigError` if it cannot be imported.
        """
        path, is_file = self.path, is_regular(self.path)
        if not is_file and self.is_path:
            raise ConfigError(f"{self.where}: there is no file {path}.")
        try:
            if is_file:
                return load_python_file(path.resolve(), self._root(root))
            with without_current_folder():
                return importlib.import_module(self.module)
        except ImportError as error:
            if is_file:
                reason = " ".join(str(error).split())
                advice = f": {advice}." if (advice := self._remedy(error)) else "."
                raise ConfigError(
                    f"{self.where}: {path} needs a module that cannot be imported "
                    f"({reason}){advice}"
                ) from error
            raise ConfigError(
                f"{self.where}: there is no file {path}, and no module {self.module!r} can be "
                "imported."
            ) from error
        except BaseException as error:  # some modules exit if a program is missing
            raise_interrupt(error)
            raise ConfigError(
                f"{self.where}: running {path} failed ({type(error).__name__}: {error})."
            ) from error

    def _root(self, root: Path | None) -> Path | None:
        """Returns the folder up to which relative imports of the module reach."""
        if root is not None and self.path.is_relative_to(root):
            return root
        return common_folder([self.file, self.path])

    def _remedy(self, error: ImportError) -> str | None:
        """Returns what to do about a module that a Python file cannot import; None if unknown."""
        missing = (error.name or "").partition(".")[0]
        if missing and is_regular(self.path.parent / f"{missing}.py"):
            return f"write `from .{missing} import …` for the file {missing}.py beside it"
        return remedy(error)


def _is_complete(part: str) -> bool:
    """Returns whether a part of a path contains no empty name, as `a..b` does."""
    return part in (".", "..") or "" not in part.lstrip(".").split(".")


def common_folder(files: Iterable[Path]) -> Path | None:
    """Returns the nearest folder that contains all `files`, which are absolute; None if none does.

    There is none if `files` is empty, or if they are on several drives.
    """
    try:
        return Path(os.path.commonpath([file.parent for file in files]))
    except ValueError:
        return None


def function_refs(value: Any) -> Iterator[FunctionRef]:
    """Yields every `!function` reference in nested mappings and lists."""
    if isinstance(value, FunctionRef):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from function_refs(item)
    elif isinstance(value, list):
        for item in value:
            yield from function_refs(item)


def resolve_functions(value: Any, root: Path | None = None) -> Any:
    """Returns a copy of nested configuration values with every `!function` resolved.

    Dictionaries and lists are copied; other values are not. This runs code from task folders.
    `root` is the folder that must contain this code; see `FunctionRef.resolve`. Raises
    `ConfigError` if a function cannot be imported.
    """
    if isinstance(value, FunctionRef):
        return value.resolve(root)
    if isinstance(value, dict):
        return {key: resolve_functions(item, root) for key, item in value.items()}
    if isinstance(value, list):
        return [resolve_functions(item, root) for item in value]
    return value
