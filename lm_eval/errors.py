"""The exceptions of this package, and helpers for their messages.

A message states what is wrong, where, and what to do about it. The command line prints only the
message and exits with code 2; `--debug` adds the traceback.
"""

from __future__ import annotations

import difflib
import dis
import traceback
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from lm_eval.extras import remedy
from lm_eval.redaction import hide_in_text


class EvalError(Exception):
    """Base class of errors that the user can fix: a wrong name, file, option or document."""

    #: The answers of each task, by task name, if scoring failed; so that they can be saved.
    answers: dict[str, list[dict[str, Any]]] | None = None

    def with_answers(self, answers: dict[str, list[dict[str, Any]]]) -> EvalError:
        """Sets `answers`, the answers that could not be scored, and returns this error."""
        self.answers = answers
        return self

    def __str__(self) -> str:
        """Returns the message without secrets (`lm_eval.redaction`), which it may quote."""
        return hide_in_text(Exception.__str__(self))  # that of `KeyError`, a base, adds quotes


class ConfigError(EvalError, ValueError):
    """A task, group or run configuration that cannot be used as written."""


class UnknownNameError(EvalError, KeyError, ValueError):
    """A name that does not exist: of a task, model, metric, filter or column."""


class DataError(EvalError, ValueError):
    """Documents that cannot be read, or that lack what the task needs."""


class ModelError(EvalError, RuntimeError):
    """A model that cannot be created, or that cannot do what the run needs."""


class OutputError(EvalError, OSError):
    """A file or folder where results cannot be written or found."""


class WhichRunError(OutputError):
    """A folder with several runs, where the user must choose one; the message lists them."""


class ForeignRunError(OutputError):
    """A run of someone else that needs the user's consent; the message lists what it would use."""


class StoreError(OutputError):
    """An answer store that cannot be read or written."""


def raise_interrupt(error: BaseException) -> None:
    """Raises `error` again if the user has interrupted the program; else does nothing.

    Code of tasks and models can raise any exception, also `SystemExit` and `KeyboardInterrupt`,
    which must not end a run without a word. A `KeyboardInterrupt` counts as the user's unless a
    `raise` statement outside this package and installed packages raised it.
    """
    if isinstance(error, GeneratorExit):
        raise error
    if isinstance(error, KeyboardInterrupt) and not _was_raised_by_code(error):
        raise error


def _was_raised_by_code(error: BaseException) -> bool:
    """Returns whether a `raise` statement of a task or model raised an exception."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    if place is None or place.tb_lasti < 0:
        return False
    code = place.tb_frame.f_code
    if not _is_outside(code.co_filename) or "site-packages" in Path(code.co_filename).parts:
        return False
    return dis.opname[code.co_code[place.tb_lasti]] == "RAISE_VARARGS"


def as_original_type(ours: EvalError, original: BaseException) -> EvalError:
    """Returns our error as a subclass of the original type, so that `except OriginalError` works.

    It is a subclass of our own type as well. The result has the attributes of the original error.
    The constructor of the original type is not called. When it is pickled, the result becomes an
    error of our type only. Returns `ours` itself if it has the original type
    already, if the types cannot be combined, for a `SyntaxError`, and for what is no `Exception`.

    Args:
        ours: our error, whose message describes the original error to the user.
        original: the exception that third-party code raised.
    """
    our_type = type(ours)
    if isinstance(ours, type(original)) or isinstance(original, SyntaxError):
        return ours
    if not isinstance(original, Exception):
        return ours
    # Some built-in types, such as OSError, can only be created by their own `__new__`.
    built_in = next(base for base in type(original).__mro__ if base.__module__ == "builtins")
    body = {
        "__module__": our_type.__module__,
        "__new__": lambda kind, *args: built_in.__new__(kind, *args),
        "__init__": Exception.__init__,
        "__str__": our_type.__str__,
        "__reduce__": lambda self: (our_type, self.args),
    }
    try:
        bases = (our_type, type(original))
        combined: EvalError = type(our_type.__name__, bases, body)(*ours.args)
        vars(combined).update(vars(original))
        if isinstance(combined, OSError) and isinstance(original, OSError):
            combined.errno, combined.strerror = original.errno, original.strerror
            combined.filename = original.filename
    except Exception:  # a type that cannot be subclassed, or not together with ours
        return ours
    return combined


def at(path: str | Path, line: int | None = None) -> str:
    """Returns `file:line`, as editors and compilers write it; only the file without a line."""
    return f"{path}:{line}" if line is not None else f"{path}"


def with_location(error: EvalError, where: object) -> EvalError:
    """Returns a new error of the same type with `where`, a file or a task, put before its message.

    `where` may be `file:line`. The error itself is returned if `where` is None or the message
    already contains the file.
    """
    text = str(error)
    if where is None or str(where).partition(":")[0] in text:
        return error
    return type(error)(f"{where}: {text}")


_STANDARD_LIBRARY = Path(traceback.__file__).parent


def describe_cause(error: BaseException) -> str:
    """Returns a description of an error in third-party code: `KeyError: 'x' (utils.py:12)`.

    The file and line are the last ones outside this package and Python's standard library; they are
    left out if there are none. If a module is missing, the description includes what to install.
    """
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if _is_outside(frame.filename)]
    place = f" ({at(Path(outside[-1].filename).name, outside[-1].lineno)})" if outside else ""
    text = f": {error}" if str(error) else ""
    description = f"{type(error).__name__}{text}{place}"
    return f"{description}: {advice}." if (advice := remedy(error)) else description


def _is_outside(filename: str) -> bool:
    """Returns whether a file is outside this package and Python's standard library.

    Code in task folders counts as outside.
    """
    path, package = Path(filename), Path(__file__).parent
    if not path.is_absolute():  # generated code has no file
        return False
    if path.is_relative_to(_STANDARD_LIBRARY) and "site-packages" not in path.parts:
        return False
    if not path.is_relative_to(package):
        return True
    folder, *rest = path.relative_to(package).parts
    return folder == "tasks" and len(rest) > 1


def nearest(name: str, known: Iterable[str], count: int = 3) -> list[str]:
    """Returns up to `count` of the known names that are most similar to `name`, best first.

    Names that are only a little similar are left out, so the list may be empty; names that contain
    `name` come last, the shortest first.
    """
    name, names = str(name), [str(other) for other in known]
    close = difflib.get_close_matches(name, names, n=count, cutoff=0.6)
    holding = sorted((other for other in names if name and name in other), key=len)
    return list(dict.fromkeys([*close, *holding]))[:count]


def suggestion(name: str, known: Iterable[str]) -> str:
    """Returns " Did you mean 'x' or 'y'?" with up to three similar known names; "" if none is.

    The text begins with a space, so that it can follow a sentence.
    """
    close = nearest(name, known)
    return f" Did you mean {' or '.join(repr(other) for other in close)}?" if close else ""
