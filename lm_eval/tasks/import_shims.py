"""Import shims for modules that published task code imports but that newer packages removed.

Only `transformers.data.metrics.squad_metrics` so far: transformers 5 no longer contains it.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

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
    """Adds the import hook for the removed modules to `sys.meta_path`, unless it is there."""
    if not any(isinstance(finder, _ShimFinder) for finder in sys.meta_path):
        sys.meta_path.append(_ShimFinder())
