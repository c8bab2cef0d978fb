"""Import hooks for modules that published task code imports.

`transformers.data.metrics.squad_metrics` is one: transformers 5 no longer contains it. Files that
load the metric `code_eval` of `evaluate` get our stand-in (`config/source_imports.py`).
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType

from lm_eval.config.source_imports import install_finder

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


def install() -> None:
    """Adds the import hooks to `sys.meta_path`, unless they are there."""
    if not any(isinstance(finder, _ShimFinder) for finder in sys.meta_path):
        sys.meta_path.append(_ShimFinder())
    install_finder()
