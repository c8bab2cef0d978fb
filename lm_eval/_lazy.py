"""Re-exports names of other modules, importing each module on first use."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    module: str, exports: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Returns the functions `__getattr__` and `__dir__` for a module that re-exports names.

    Modules such as `lm_eval.utils` keep the published import paths this way, without importing what
    they re-export: `import lm_eval` must stay fast. `__getattr__` raises `AttributeError` for other
    names; `__dir__` returns only the names in `exports`, sorted.

    Args:
        module: the `__name__` of the module.
        exports: for each name the module that defines it: `{name: "package.module"}`.
    """

    def getattribute(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(exports[name]), name)

    def names() -> list[str]:
        return sorted(exports)

    return getattribute, names
