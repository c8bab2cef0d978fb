"""Loads model classes given as `FILE.py:CLASS` or `package.module:CLASS`."""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from lm_eval.api.model import LM
from lm_eval.api.registry import model_registry
from lm_eval.config.python_files import load_python_file
from lm_eval.errors import ConfigError, ModelError, describe_cause, raise_interrupt, suggestion
from lm_eval.extras import remedy


def location_of(model: Any) -> ModelLocation | None:
    """Returns the location of a model class that is given as `FILE.py:CLASS` or `MODULE:CLASS`.

    Returns None for objects, registered names and any other string. The file or module need not
    exist. `FILE.py` without a class has an empty `class_name`.
    """
    if not isinstance(model, str) or model in model_registry:
        return None
    if ".py:" in model or model.endswith(".py"):
        source, _, class_name = model.partition(".py")
        return ModelLocation(f"{source}.py", class_name.removeprefix(":"))
    source, colon, class_name = model.rpartition(":")
    if colon and class_name.isidentifier() and _is_module(source):
        return ModelLocation(source, class_name)
    return None


@dataclass(frozen=True)
class ModelLocation:
    """A Python file or module, and the name of a model class in it.

    The file is relative to the current directory. `class_name` is as the user gave it; `check`
    raises if it is not the name of a class.
    """

    source: str
    class_name: str

    def __str__(self) -> str:
        return f"{self.source}:{self.class_name}" if self.class_name else self.source

    @property
    def path(self) -> Path | None:
        """The file, or None if the class is named by its module."""
        return Path(self.source).expanduser().resolve() if _is_file(self.source) else None

    def check(self) -> None:
        """Raises `ModelError` if the file or the top-level module does not exist.

        A file is parsed, without running its code; a syntax error or a missing class raises
        `ModelError`, a missing class name `ConfigError`. The class in a module is not checked. For
        a module, the current directory is added to `sys.path`; `ConfigError` if it does not exist
        but is the name of a registered model.
        """
        if self.path is not None:
            self._check_file(self.path)
            return
        _search_current_directory()
        top = self.source.partition(".")[0]
        if not _is_importable(top):
            if top in model_registry:
                raise ConfigError(
                    f"--model {self}: {top!r} is a registered model; give its arguments with "
                    f"--model {top} --model_args KEY=VALUE."
                )
            raise ModelError(
                f"--model {self}: there is no module {top!r}. Install the package that contains "
                "it, run the command from the directory that contains it, or name the file: "
                f"--model path/to/file.py:{self.class_name}."
            )

    def _check_file(self, path: Path) -> None:
        if not path.is_file():
            raise ModelError(
                f"--model {self.source}: there is no file {path}. Relative paths are resolved "
                "against the current directory."
            )
        try:
            tree = ast.parse(path.read_bytes(), str(path))
        # ValueError: the file contains a null byte; the others: it is nested too deeply
        except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
            raise ModelError(
                f"--model {self}: the file is not valid Python: {type(error).__name__}: {error}."
            ) from error
        classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
        if not self.class_name.isidentifier():
            raise ConfigError(
                f"--model {self}: give the file and the name of one of its model classes: "
                f"{' or '.join(f'{self.source}:{name}' for name in classes or ['CLASS'])}."
            )
        if not {self.class_name, "*"} & _names_in(tree):
            known = f" It defines: {', '.join(classes)}." if classes else " It defines no class."
            raise ModelError(
                f"--model {self}: {self.source} has no class {self.class_name!r}."
                f"{suggestion(self.class_name, classes)}{known}"
            )

    def load(self) -> type[LM]:
        """Imports the file or module and returns the model class.

        Raises `ModelError` if the import fails, or if there is no such class, or if the class is
        not derived from `LM`. Also raises what `check` raises.
        """
        self.check()
        module = self._import()
        found = getattr(module, self.class_name, None)
        if isinstance(found, type) and issubclass(found, LM):
            return found
        names = [n for n, value in vars(module).items() if _is_model_defined_in(module, value)]
        if found is None:
            known = f" It defines: {', '.join(names)}." if names else " It defines no model class."
            raise ModelError(
                f"--model {self}: {self.source} has no class {self.class_name!r}."
                f"{suggestion(self.class_name, names)}{known}"
            )
        raise ModelError(
            f"--model {self}: {self.class_name} must be a class derived from lm_eval.api.model.LM; "
            f"it is {_described(found)}."
        )

    def _import(self) -> ModuleType:
        try:
            if self.path is None:
                return importlib.import_module(self.source)
            _search_beside(self.path.parent)
            return load_python_file(self.path)
        except ImportError as error:
            advice = remedy(error)
            command = f" ({advice})" if advice.startswith("pip install") else ""
            raise ModelError(
                f"--model {self}: importing {self.source} failed: {error}{command}."
            ) from error
        except BaseException as error:  # user code may raise anything
            raise_interrupt(error)
            raise ModelError(
                f"--model {self}: running {self.source} failed: {describe_cause(error)}."
            ) from error


def source_digest(model_class: type[LM]) -> str | None:
    """Returns a hash of the code of a third-party model class.

    It covers the files of the class and of its base classes, and the imported modules beside them
    (or in the same package). Of a script (`__main__`), only the class is hashed. Returns None for a
    built-in class, for a class that defines `identity` itself, and where there is no source.
    """
    classes = [c for c in model_class.__mro__ if not _is_built_in(c)]
    if not classes or any("identity" in vars(c) for c in classes):
        return None
    digest = hashlib.sha256()
    try:
        for one in classes:
            if one.__module__ == "__main__":
                digest.update(inspect.getsource(one).encode())
                continue
            for path in _files_of(one):
                digest.update(f"{path.name} ".encode() + path.read_bytes())
    except (OSError, TypeError):  # defined in an interactive session, or without a file
        return None
    return digest.hexdigest()


def _files_of(one: type) -> list[Path]:
    """Returns the file that defines a class, and those of the imported modules that belong to it.

    Those are the modules of the same package; for a class that was given by its file, the modules
    beside it.
    """
    own = Path(inspect.getfile(one)).resolve()
    package = one.__module__.partition(".")[0] if "." in one.__module__ else None
    beside = own.parent if own.parent == _folder_searched else None
    found = {own}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or not str(file).endswith(".py"):
            continue
        if (package is not None and name.partition(".")[0] == package) or (
            beside is not None and Path(file).resolve().parent == beside
        ):
            found.add(Path(file).resolve())
    return sorted(found)


def _is_built_in(one: type) -> bool:
    return one.__module__.partition(".")[0] in ("lm_eval", "builtins", "abc", "typing")


def _is_file(source: str) -> bool:
    return source.endswith(".py")


def _is_module(source: str) -> bool:
    return all(part.isidentifier() for part in source.split("."))


def _is_model_defined_in(module: ModuleType, value: Any) -> bool:
    """Returns whether `value` is a model class that `module` defines, rather than imports."""
    return isinstance(value, type) and issubclass(value, LM) and value.__module__ == module.__name__


def _described(value: Any) -> str:
    if isinstance(value, type):
        return f"derived from {', '.join(base.__name__ for base in value.__bases__)}"
    return f"of type {type(value).__name__}"


def _names_in(tree: ast.Module) -> set[str]:
    """Returns the names of all classes, imports and variables in a file, also nested ones.

    A wildcard import adds the name `*`.
    """
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _is_importable(module: str) -> bool:
    """Returns whether there is a top-level module of that name; imports nothing."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # such as `__main__`
        return False


#: The folder of the model class that was last loaded by its file.
_folder_searched: Path | None = None


def _search_beside(folder: Path) -> None:
    """Lets the file of a model class import the files beside it.

    The folder of the class that was loaded before is no longer searched, and the modules that came
    from it are forgotten: its helpers may have the same names.
    """
    global _folder_searched
    if folder == _folder_searched:
        return
    if _folder_searched is not None:
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if file and "." not in name and Path(file).resolve().parent == _folder_searched:
                del sys.modules[name]
        if str(_folder_searched) in sys.path:
            sys.path.remove(str(_folder_searched))
    _folder_searched = folder
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def _search_current_directory() -> None:
    """Lets modules be imported from the current directory, as `python -m` does."""
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)
