"""One family of exceptions, each written for the person who reads it.

Every message says what is wrong, where, and what to do about it. The command line prints the
message alone and exits with 2; `--debug` adds the traceback.
"""

from __future__ import annotations

import difflib
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lm_eval.extras import remedy


class EvalError(Exception):
    """Anything the user can put right: a bad name, file, option or document."""

    #: If scoring failed: what each task had been answered by then, so that nothing is lost.
    answers: dict[str, list[dict[str, Any]]] | None = None

    def with_answers(self, answers: dict[str, list[dict[str, Any]]]) -> EvalError:
        """Returns this error, holding the answers that could not be scored."""
        self.answers = answers
        return self

    def __str__(self) -> str:  # that of a KeyError would be quoted
        return Exception.__str__(self)


class ConfigError(EvalError, ValueError):
    """A task, group or run configuration that cannot be used as written."""


class UnknownNameError(EvalError, KeyError, ValueError):
    """A name that nothing answers to: a task, model, metric, filter or column."""


class DataError(EvalError, ValueError):
    """Documents that cannot be read, or do not hold what the task expects."""


class ModelError(EvalError, RuntimeError):
    """A model that cannot be made, or cannot do what was asked of it."""


class OutputError(EvalError, OSError):
    """A place where results cannot be written."""


class WhichRunError(OutputError):
    """A folder in which the run that is meant is not clear; the message lists the runs."""


class StoreError(OutputError):
    """A store of answers that cannot be read or written."""


def also_known_as(told: EvalError, error: Exception) -> EvalError:
    """An error of ours about somebody's code that is caught by the name of theirs, too.

    It has what theirs has (`errno`, a response …), is made without their constructor, and goes to
    another process as ours alone.
    """
    ours = type(told)
    if isinstance(told, type(error)) or isinstance(error, SyntaxError):
        return told
    body = {
        "__module__": ours.__module__,
        "__new__": lambda kind, *args: Exception.__new__(kind, *args),
        "__init__": Exception.__init__,
        "__str__": ours.__str__,
        "__reduce__": lambda self: (ours, self.args),
    }
    try:
        joined: EvalError = type(ours.__name__, (ours, type(error)), body)(*told.args)
        vars(joined).update(vars(error))
    except Exception:  # one that cannot be derived from, or not along with ours
        return told
    return joined


def at(path: str | Path, line: int | None = None) -> str:
    """`file:line`, the way editors and compilers write it."""
    return f"{path}:{line}" if line is not None else f"{path}"


def located(error: EvalError, where: object) -> EvalError:
    """The same error with the place put before it, unless it is named already."""
    text = str(error)
    if where is None or str(where).partition(":")[0] in text:
        return error
    return type(error)(f"{where}: {text}")


def whence(error: BaseException) -> str:
    """`KeyError: 'x' (utils.py:12)`: what went wrong, and the last place outside this package.

    Where a module is missing, what to install too.
    """
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if _is_outside(frame.filename)]
    place = f" ({at(Path(outside[-1].filename).name, outside[-1].lineno)})" if outside else ""
    told = f"{type(error).__name__}: {error}{place}"
    return f"{told}: {advice}." if (advice := remedy(error)) else told


def _is_outside(filename: str) -> bool:
    """Whether a file is somebody's own; a benchmark's helpers in our task folders are too."""
    path, package = Path(filename), Path(__file__).parent
    if not path.is_absolute():  # generated code has no file
        return False
    if not path.is_relative_to(package):
        return True
    folder, *rest = path.relative_to(package).parts
    return folder == "tasks" and len(rest) > 1


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The known names most like `name`, best first."""
    name, names = str(name), [str(other) for other in known]
    close = difflib.get_close_matches(name, names, n=count, cutoff=0.6)
    holding = sorted((other for other in names if name and name in other), key=len)
    return list(dict.fromkeys([*close, *holding]))[:count]


def suggestion(name: str, known: Iterable[str]) -> str:
    """A sentence offering the nearest names, or nothing."""
    close = nearest(name, known)
    return f" Did you mean {' or '.join(repr(other) for other in close)}?" if close else ""
