"""Serves `evaluate.load("code_eval")` to task code; nothing is downloaded.

Published task folders load the metric `code_eval` of Hugging Face's `evaluate` library, which runs
programs in processes without a sandbox. Files of task folders that mention it get a module
`evaluate` whose `load("code_eval")` returns a `CodeEval`. All other names come from the library, if
it is installed. `sys.modules` and the library itself are not changed.
"""

from __future__ import annotations

import builtins
import importlib
import inspect
import linecache
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any

from lm_eval.code_eval.compute import CodeEval

#: The text in a Python file by which it is recognized.
METRIC = "code_eval"
_LIBRARY = "evaluate"


class EvaluateModule(ModuleType):
    """The `evaluate` library, except that its metric `code_eval` is ours."""

    def load(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """Returns the metric `path`: a `CodeEval` for `code_eval`, or that of the library.

        Raises `ModuleNotFoundError` if it has to come from the library, which is not installed.
        """
        if str(path).rpartition("/")[2] == METRIC:
            return CodeEval()
        return importlib.import_module(_LIBRARY).load(path, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(importlib.import_module(_LIBRARY), name)


def builtins_for_task_code() -> dict[str, Any]:
    """Returns builtins with which `import evaluate` gives our `EvaluateModule`.

    They are for the `__builtins__` of a module, before its code is run.
    """
    served = EvaluateModule(_LIBRARY)

    def import_served(
        name: str,
        globals: Mapping[str, object] | None = None,
        locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        if name == _LIBRARY and level == 0:
            return served
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    return {**vars(builtins), "__import__": import_served}


def runs_in_sandbox(functions: Iterable[Any]) -> bool:
    """Returns whether any of these functions of task code runs programs through `code_eval`.

    That is assumed of methods of a `CodeEval`, and of functions whose file mentions `code_eval` or
    our sandbox.
    """
    for function in functions:
        while isinstance(function, partial):
            function = function.func
        if isinstance(getattr(function, "__self__", None), CodeEval):
            return True
        code = getattr(inspect.unwrap(function), "__code__", None)
        text = "" if code is None else "".join(linecache.getlines(code.co_filename))
        if METRIC in text or "lm_eval.sandbox" in text:
            return True
    return False
