"""Import hooks for modules that published task code imports.

- `transformers.data.metrics.squad_metrics`: transformers 5 no longer contains it.
- `evaluate`, in files of task folders that load its metric `code_eval`: they get our stand-in
  (`code_eval/evaluate_module.py`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from lm_eval.config.python_files import TASK_MODULES, loader_of_task_file

_METRICS = "transformers.data.metrics"
_SQUAD = f"{_METRICS}.squad_metrics"


class _ShimFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Import hook that provides the removed modules.

    It is the last finder on `sys.meta_path`, so a module that its package still contains is
    imported from the package.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in (_METRICS, _SQUAD):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name == _METRICS)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _SQUAD:
            from lm_eval.helpers import squad

            names = ("compute_exact", "compute_f1", "normalize_answer")
            vars(module).update({name: getattr(squad, name) for name in names})


class _TaskFileFinder(importlib.abc.MetaPathFinder):
    """Import hook for files of task folders that other files import: `from .utils import f`.

    Files that a `!function` names are imported by `config/python_files.py`, with the same loader.
    """

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if path is None or not name.startswith(TASK_MODULES):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is None or not isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            return None
        loader = loader_of_task_file(name, Path(spec.loader.path))
        if loader is None:
            return None
        return importlib.util.spec_from_file_location(
            name,
            spec.loader.path,
            loader=loader,
            submodule_search_locations=spec.submodule_search_locations,
        )


def install() -> None:
    """Adds the import hooks to `sys.meta_path`, unless they are there."""
    if not any(isinstance(finder, _ShimFinder) for finder in sys.meta_path):
        sys.meta_path.append(_ShimFinder())
        sys.meta_path.insert(0, _TaskFileFinder())
