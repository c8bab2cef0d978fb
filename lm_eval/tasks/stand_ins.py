"""Stand-ins for modules that published task folders import and that their packages have lost."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

#: transformers had SQuAD's measures until version 5; many tasks take them from there.
_METRICS = "transformers.data.metrics"
_SQUAD = f"{_METRICS}.squad_metrics"


class _StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Asked last of all: what a package still has comes from the package."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in (_METRICS, _SQUAD):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=name == _METRICS)

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ == _SQUAD:
            from lm_eval.tasks.squadv2.overlap import exact, f1, normalise

            vars(module).update(compute_exact=exact, compute_f1=f1, normalize_answer=normalise)


def offer() -> None:
    """Let the code of tasks import the stand-ins from now on."""
    if not any(isinstance(finder, _StandIns) for finder in sys.meta_path):
        sys.meta_path.append(_StandIns())
