"""Imports Python files of task folders from their source text, never from compiled code.

Python prefers the compiled code in `__pycache__` if it claims to belong to the source file. In a
folder of somebody else, it may be different code, which nobody has read and no hash covers.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, ModuleType

#: The beginning of the names of packages that stand for a task folder.
PACKAGE_PREFIX = "lm_eval_tasks_"
#: Task folders are also importable as subpackages of this package.
_TASKS = "lm_eval.tasks."
_LIBRARY = Path(__file__).parents[1]


class SourceLoader(importlib.machinery.SourceFileLoader):
    """Compiles a module from its source each time; reads and writes no `__pycache__`."""

    def get_code(self, fullname: str) -> CodeType:
        """Returns the compiled source of the module."""
        code: CodeType = self.source_to_code(self.get_data(self.path), self.path)
        return code


class ServedSourceLoader(SourceLoader):
    """Does so for a file that mentions `code_eval`, which gets our stand-in for that metric."""

    def exec_module(self, module: ModuleType) -> None:
        """Runs the code of the module."""
        from lm_eval.code_eval.evaluate_module import evaluate_served

        with evaluate_served(module):
            super().exec_module(module)


class SourceFinder(importlib.abc.MetaPathFinder):
    """Finds modules of task folders, which `loader_of_task_file` then loads."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Returns how to load a module of a task folder; None for those imported as usual.

        Raises `ImportError` if only compiled code of the module is there.
        """
        if path is None or not fullname.startswith((PACKAGE_PREFIX, _TASKS)):
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is None or not spec.origin:
            return None
        if isinstance(spec.loader, importlib.machinery.SourcelessFileLoader):
            raise ImportError(f"{spec.origin} is compiled code without its source", name=fullname)
        if not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return spec
        loader = loader_of_task_file(fullname, Path(spec.origin))
        if loader is None:
            return None
        return importlib.util.spec_from_file_location(
            fullname,
            spec.origin,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


def install_finder() -> None:
    """Makes Python import modules of task folders from their source; done once per process."""
    if not any(isinstance(finder, SourceFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, SourceFinder())


def spec_of(name: str, path: Path) -> ModuleSpec | None:
    """Returns how to import a Python file as the module `name`; None if its name is not `*.py`."""
    loader = loader_of_task_file(name, path) if path.suffix == ".py" else None
    return importlib.util.spec_from_file_location(name, path, loader=loader)


def loader_of_task_file(name: str, path: Path) -> importlib.abc.Loader | None:
    """Returns the loader of a Python file that is imported as the module `name`.

    A file that mentions `code_eval` imports our stand-in for that metric of the `evaluate` library,
    and runs no program while it is imported. None for other files of the package, which are
    imported as usual, with Python's cache of compiled code.
    """
    if b"code_eval" in path.read_bytes():
        return ServedSourceLoader(name, str(path))
    return None if path.is_relative_to(_LIBRARY) else SourceLoader(name, str(path))


@contextmanager
def without_current_folder() -> Iterator[None]:
    """Context manager in which modules of the current folder cannot be imported.

    Python searches it first in an interactive session and with `python -m`. A folder that is also
    on the path for another reason, such as an editable installation, is still searched.
    """
    before = list(sys.path)
    kept = [entry for entry in before if entry]
    if before and before[0] == str(Path.cwd()):
        kept = kept[1:]
    sys.path[:] = kept
    try:
        yield
    finally:
        sys.path[:] = before
