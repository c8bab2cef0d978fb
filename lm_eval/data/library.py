"""The `datasets` library, asked quietly, and its errors in one line."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from lm_eval.errors import DataError


def load_dataset(path: str, name: str | None, kwargs: Mapping[str, Any]) -> Mapping[Any, Any]:
    """`datasets.load_dataset`, every split of it."""
    import datasets

    with quiet_in_a_pipe():
        loaded: Mapping[Any, Any] = datasets.load_dataset(path=path, name=name, **kwargs)
    return loaded


def load_from_disk(folder: str) -> Mapping[Any, Any]:
    """A data set that `save_to_disk` wrote. A single split goes by its own name, or `train`."""
    import datasets

    loaded = datasets.load_from_disk(folder)
    return loaded if isinstance(loaded, Mapping) else {str(loaded.split or "train"): loaded}


@contextlib.contextmanager
def quiet_in_a_pipe() -> Iterator[None]:
    """Progress bars are for people who watch."""
    import datasets

    if sys.stderr.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()


def reasons(error: BaseException) -> dict[str, BaseException]:
    """An error and all that led to it, by the names of their classes, bases included."""
    found: dict[str, BaseException] = {}
    problem: BaseException | None = error
    while problem is not None and problem not in found.values():
        for kind in type(problem).__mro__:
            found.setdefault(kind.__name__, problem)
        problem = problem.__cause__ or problem.__context__
    return found


def explain(error: Exception) -> str:
    """What went wrong, in one line, from the innermost error that says something."""
    if isinstance(error, DataError):
        return str(error)
    told = " ".join(str(error).split())
    if "scripts are no longer supported" in told:
        return (
            "it is a data set script, and `datasets` 4 and later run none (trust_remote_code does "
            "not change that). Many such data sets have a Parquet copy on the hub: try "
            "`dataset_kwargs: {revision: refs/convert/parquet}`."
        )
    deepest: BaseException = error
    while deepest.__cause__ is not None and str(deepest.__cause__).strip():
        deepest = deepest.__cause__
    first = (str(deepest).strip().splitlines() or [""])[0]
    return f"{type(deepest).__name__}: {first}".rstrip(": ")
