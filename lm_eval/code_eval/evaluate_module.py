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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import FunctionType, MethodType, ModuleType
from typing import Any

from lm_eval.code_eval.compute import CodeEval
from lm_eval.code_eval.session import programs_not_run

METRIC = "code_eval"
_LIBRARY = "evaluate"
#: Packages whose functions run programs in the sandbox.
_ROOMS = ("lm_eval.code_eval", "lm_eval.sandbox", "lm_eval.tasks.humaneval.", "lm_eval.tasks.mbpp.")


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


@contextmanager
def evaluate_served(module: ModuleType) -> Iterator[None]:
    """Makes `import evaluate` in a module give `EvaluateModule`; its code is run in the block.

    Meanwhile no program is run: published files run a small one.
    """
    vars(module).update(__builtins__=_builtins_for_task_code())
    with programs_not_run():
        yield


def _builtins_for_task_code() -> dict[str, Any]:
    """Returns builtins with which `import evaluate` gives our `EvaluateModule`."""
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


def runs_in_sandbox(functions: Iterable[Callable[..., Any]]) -> bool:
    """Returns whether any of these functions of task code runs programs in our sandbox.

    That is assumed if a function belongs to a file that is served our `evaluate`, or if it can
    reach names of our packages that do.
    """
    return any(map(_runs_in_sandbox, functions))


def _runs_in_sandbox(function: Callable[..., Any]) -> bool:
    if _is_ours(function):
        return True
    names = getattr(inspect.unwrap(function), "__globals__", {})
    if any(map(_is_ours, names.values())) or _is_served(names.get("__builtins__")):
        return True
    code = getattr(inspect.unwrap(function), "__code__", None)
    text = "" if code is None else "".join(linecache.getlines(code.co_filename))
    return any(name in text for name in _ROOMS)  # imported inside a function


def _is_ours(value: Any) -> bool:
    """Returns whether a value is a `CodeEval`, or a function or module of these packages."""
    while isinstance(value, partial):
        value = value.func
    if isinstance(value, MethodType):
        value = value.__self__ if isinstance(value.__self__, CodeEval) else value.__func__
    if isinstance(value, CodeEval):
        return True
    name = value.__name__ if isinstance(value, ModuleType) else ""
    if isinstance(value, FunctionType):
        name = str(value.__module__)
    return name.startswith(_ROOMS)


def _is_served(names: Any) -> bool:
    """Returns whether the `__builtins__` of a module were set by `evaluate_served`."""
    own = names.get("__import__") if isinstance(names, dict) else None
    return isinstance(own, FunctionType) and own.__module__ == __name__
