"""Load the splits of a data set by the name a task file gives it."""

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

#: Arguments of `load_dataset` that change nothing here: the library runs no data set's code since
#: version 4, and a stream has the documents that the whole data set has.
_IGNORED = ("trust_remote_code", "streaming")


@dataclass(frozen=True)
class Loaded:
    """A data set that was asked for, as it was asked for, and what came of it."""

    path: str
    name: str | None
    kwargs: dict[str, Any]
    splits: Splits


_loads: ContextVar[list[Loaded] | None] = ContextVar("loads", default=None)


@contextlib.contextmanager
def recorded_loads() -> Iterator[list[Loaded]]:
    """Everything loaded while this lasts: how `fetch` learns what a task needs."""
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
    """Every split of a data set, by split name; a mirror is asked before the hub.

    `folder` is where the task file lies: files named relative to it are found from anywhere.
    """
    if not path:
        raise DataError("the task names no data set: set dataset_path or custom_dataset.")
    for key in _IGNORED:
        kwargs.pop(key, None)
    if kwargs.pop("split", None):
        raise DataError(
            "dataset_kwargs: split cannot be used here: name it as test_split, validation_split, "
            "training_split or fewshot_split."
        )
    splits = _find(path, name, kwargs, folder)
    loads = _loads.get()
    if loads is not None:
        loads.append(Loaded(path, name, kwargs, splits))
    return splits


def _find(path: str, name: str | None, kwargs: dict[str, Any], folder: Path | None) -> Splits:
    if path in FORMATS:
        return _files(path, name, kwargs, folder)
    if path.endswith(".py"):
        raise DataError(f"the data set {path} cannot be loaded: {explain(_script())}")
    mirror = current_mirror() if is_hub_name(path) else None
    mirrored = mirror.find(path, name, kwargs) if mirror else None
    if mirrored is not None:
        return mirrored
    local = _local_folder(path, folder)
    if local is not None:
        return _local(local, path, name, locate(kwargs, folder))
    if not is_hub_name(path) and "://" not in path:
        searched = ", ".join(map(str, searched_folders(folder)))
        raise DataError(
            f"there is no folder {path}, and no data set can be called that. Searched: {searched}."
        )
    try:
        return hub.load_from_hub(path, name, kwargs)
    except DataError as error:
        if mirror is None:
            raise
        raise DataError(f"{error} (The mirror {mirror.root} does not have it.)") from error


def _files(path: str, name: str | None, kwargs: dict[str, Any], folder: Path | None) -> Splits:
    url = remote_file(kwargs)
    if url is None:
        return load_files(path, name, kwargs, folder)
    mirror = current_mirror()
    mirrored = mirror.find(path, name, kwargs) if mirror else None
    if mirrored is not None:
        return mirrored
    away = hub.unreachable(hub.address_of(url))
    if away:
        raise DataError(f"the data file {url} is not here, and {away}. {hub.MIRROR_REMEDY}")
    return load_files(path, name, kwargs, folder)


def _local_folder(path: str, folder: Path | None) -> Path | None:
    """A folder on this machine: beside the task file, or where the command is given."""
    places = [folder / path] if folder is not None else []
    places.append(Path(path).expanduser())
    return next((place for place in places if place.is_dir()), None)


def _local(folder: Path, path: str, name: str | None, kwargs: dict[str, Any]) -> Splits:
    """A data set that was saved to disk, or a folder of files."""
    saved = [(folder / file).is_file() for file in ("dataset_dict.json", "state.json")]
    try:
        if any(saved):
            return Splits.of(Origin("saved", path, name), load_from_disk(str(folder)))
        return Splits.of(Origin("files", path, name), load_dataset(str(folder), name, kwargs))
    except Exception as error:
        raise DataError(f"the data set in {folder} cannot be loaded: {explain(error)}") from error


def _script() -> Exception:
    return RuntimeError("Dataset scripts are no longer supported")
