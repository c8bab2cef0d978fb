"""Let a module offer names that live elsewhere, importing each only when it is first used."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from typing import Any


def lazy_exports(
    module: str, exports: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Make a module's `__getattr__` and `__dir__` from `{name: "package.module"}`.

    Documented import paths (`lm_eval.utils`, `lm_eval.api.metrics` …) stay alive this way without
    pulling in what they point to: `import lm_eval` must stay light.
    """

    def getattribute(name: str) -> Any:
        if name not in exports:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(exports[name]), name)

    def names() -> list[str]:
        return sorted(exports)

    return getattribute, names
