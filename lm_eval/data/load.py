"""Loads the splits of a dataset from the source that a task's `dataset_path` refers to."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm_eval.data import hub
from lm_eval.data.files import FORMATS, load_files, locate, remote_file, searched_folders
from lm_eval.data.library import explain, load_dataset, load_from_disk
from lm_eval.data.mirror import current_mirror, is_hub_name
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError

#: Arguments of `load_dataset` that are ignored: `datasets` 4 and later never run a dataset's code,
#: and streaming gives the same documents as the whole dataset.
_IGNORED = ("trust_remote_code", "streaming")


@dataclass(frozen=True)
class Loaded:
    """One call of `load_splits`: its arguments and the splits that it returned."""

    path: str
    name: str | None
    kwargs: dict[str, Any]
    splits: Splits


_loads: ContextVar[list[Loaded] | None] = ContextVar("loads", default=None)


@contextlib.contextmanager
def recorded_loads() -> Iterator[list[Loaded]]:
    """Context manager that yields a list; each call of `load_splits` in the block adds a `Loaded`.

    That entry holds the arguments of the call and the splits that it returned. `lm-eval fetch`
    finds out with it which datasets a task needs. In a nested block, only the inner list grows.
    """
    loads: list[Loaded] = []
    token = _loads.set(loads)
    try:
        yield loads
    finally:
        _loads.reset(token)


def load_splits(
    path: str | None,
    name: str | None = None,
    *,
    folder: Path | None = None,
    **kwargs: Any,
) -> Splits:
    """Returns the splits of a dataset by name. Parquet files are read when a split is accessed.

    Sources are tried in this order: data files (if `path` is a file format), the mirror, a local
    folder, the hub.

    Args:
        path: the `dataset_path` of a task: the name of a dataset on the hub, a local folder, or a
            file format (`files.FORMATS`).
        name: the `dataset_name`: the configuration of the dataset.
        folder: the folder of the task file, in which relative paths are searched.
        **kwargs: the `dataset_kwargs`: arguments of `datasets.load_dataset`. `trust_remote_code`
            and `streaming` are ignored.

    Raises:
        DataError: if `path` is None or empty, the dataset cannot be found or loaded, or `kwargs`
            contains `split`.
    """
    if not path:
        raise DataError("the task names no dataset: set dataset_path or custom_dataset.")
    for key in _IGNORED:
        kwargs.pop(key, None)
    if kwargs.pop("split", None):
        raise DataError(
            "dataset_kwargs must not contain `split`. Set test_split, validation_split, "
            "training_split or fewshot_split instead."
        )
    splits = _load(path, name, kwargs, folder)
    loads = _loads.get()
    if loads is not None:
        loads.append(Loaded(path, name, kwargs, splits))
    return splits


def _load(path: str, name: str | None, kwargs: dict[str, Any], folder: Path | None) -> Splits:
    if path in FORMATS:
        return _load_files(path, name, kwargs, folder)
    if path.endswith(".py"):
        raise DataError(f"the dataset {path} cannot be loaded: {explain(_script_error())}")
    mirror = current_mirror() if is_hub_name(path) else None
    mirrored = mirror.find(path, name, kwargs) if mirror else None
    if mirrored is not None:
        return mirrored
    local = _local_folder(path, folder)
    if local is not None:
        return _load_folder(local, path, name, locate(kwargs, folder))
    if not is_hub_name(path) and "://" not in path:
        searched = ", ".join(map(str, searched_folders(folder)))
        raise DataError(
            f"there is no folder {path}, and it is not a valid name of a dataset on the hub. "
            f"Searched: {searched}."
        )
    try:
        return hub.load_from_hub(path, name, kwargs)
    except DataError as error:
        if mirror is None:
            raise
        raise DataError(f"{error} (The mirror {mirror.root} does not contain it.)") from error


def _load_files(path: str, name: str | None, kwargs: dict[str, Any], folder: Path | None) -> Splits:
    """Returns the splits in data files; remote files are read from the mirror if it has them.

    `path` is the file format, `kwargs` names the files (`data_files`, `data_dir`), and `folder` is
    that of the task file, in which relative paths are searched first (None: only in the working
    directory). Raises `DataError` if the server of remote files cannot be reached, or files cannot
    be read.
    """
    url = remote_file(kwargs)
    if url is None:
        return load_files(path, name, kwargs, folder)
    mirror = current_mirror()
    mirrored = mirror.find(path, name, kwargs) if mirror else None
    if mirrored is not None:
        return mirrored
    problem = hub.unreachable(hub.address_of(url))
    if problem:
        raise DataError(
            f"the data file {url} is not on this machine, and {problem}. {hub.MIRROR_REMEDY}"
        )
    return load_files(path, name, kwargs, folder)


def _local_folder(path: str, folder: Path | None) -> Path | None:
    """Returns the local folder `path`, relative to the task file or the working directory.

    None if there is none.
    """
    candidates = [folder / path] if folder is not None else []
    candidates.append(Path(path).expanduser())
    return next((candidate for candidate in candidates if candidate.is_dir()), None)


def _load_folder(folder: Path, path: str, name: str | None, kwargs: dict[str, Any]) -> Splits:
    """Returns the splits in a local folder: a dataset from `save_to_disk`, or data files.

    `path` is the folder as the task names it. Raises `DataError` if the folder cannot be loaded.
    """
    saved = [(folder / file).is_file() for file in ("dataset_dict.json", "state.json")]
    try:
        if any(saved):
            return Splits.of(Origin("saved", path, name), load_from_disk(str(folder)))
        return Splits.of(Origin("files", path, name), load_dataset(str(folder), name, kwargs))
    except Exception as error:
        raise DataError(f"the dataset in {folder} cannot be loaded: {explain(error)}") from error


def _script_error() -> Exception:
    return RuntimeError("Dataset scripts are no longer supported")
