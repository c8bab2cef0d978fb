"""Calls of the `datasets` library without progress bars, and its errors as one-line messages."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from lm_eval.errors import DataError

#: Formats of `datasets` whose files are pickles: reading one can run any code.
PICKLED = ("pandas", "pickle")


def pickle_error(path: str) -> DataError:
    """Returns the error about a `dataset_path` that is a format of pickles."""
    return DataError(
        f"dataset_path {path!r}: pickle files are not read, because reading one can run any code. "
        "Convert the file to Parquet or JSON Lines, and set dataset_path to parquet or json."
    )


def load_dataset(path: str, name: str | None, kwargs: Mapping[str, Any]) -> Mapping[Any, Any]:
    """Returns all splits of a dataset by name, loaded with `datasets.load_dataset`.

    `kwargs` are its further arguments. Errors of the library are not caught; see `explain`.
    """
    import datasets

    with progress_bars_only_on_terminal():
        loaded: Mapping[Any, Any] = datasets.load_dataset(path=path, name=name, **kwargs)
    return loaded


def load_from_disk(folder: str) -> Mapping[Any, Any]:
    """Returns the splits, by name, of a dataset written with `save_to_disk`.

    A single split without a name is called `train`. Errors of the library are not caught.
    """
    import datasets

    loaded = datasets.load_from_disk(folder)
    return loaded if isinstance(loaded, Mapping) else {str(loaded.split or "train"): loaded}


@contextlib.contextmanager
def progress_bars_only_on_terminal() -> Iterator[None]:
    """Disables the library's progress bars inside the `with` block if stderr is no terminal."""
    import datasets

    if sys.stderr.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()


def error_chain(error: BaseException) -> dict[str, BaseException]:
    """Returns an exception and its causes, by the names of their classes and base classes.

    For a name that occurs several times, the outermost exception is returned. So `name in result`
    tells whether the exception or one of its causes is of a class called `name`.
    """
    found: dict[str, BaseException] = {}
    problem: BaseException | None = error
    while problem is not None and problem not in found.values():
        for kind in type(problem).__mro__:
            found.setdefault(kind.__name__, problem)
        problem = problem.__cause__ or problem.__context__
    return found


def explain(error: Exception) -> str:
    """Returns one line that describes an error of the library.

    It is the type and the first line of the message of the innermost cause. A `DataError` gives its
    own message. The error about a dataset script gives advice instead.
    """
    if isinstance(error, DataError):
        return str(error)
    text = " ".join(str(error).split())
    if "scripts are no longer supported" in text:
        return (
            "it is a dataset script, which `datasets` 4 and later do not run (trust_remote_code "
            "does not change that). Many of these datasets have a Parquet copy on the hub: try "
            "`dataset_kwargs: {revision: refs/convert/parquet}`."
        )
    deepest: BaseException = error
    while deepest.__cause__ is not None and str(deepest.__cause__).strip():
        deepest = deepest.__cause__
    first = (str(deepest).strip().splitlines() or [""])[0]
    return f"{type(deepest).__name__}: {first}".rstrip(": ")
