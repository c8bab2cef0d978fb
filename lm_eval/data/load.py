"""Load the splits of a data set by the name a task file gives it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm_eval.data.files import JSON_SUFFIXES, read_json
from lm_eval.errors import DataError, EvalError

#: `dataset_path` values that name a file format instead of a data set.
FILE_FORMATS = ("json", "csv", "parquet", "text", "arrow", "xml")


def load_splits(
    path: str | None,
    name: str | None = None,
    *,
    folder: Path | None = None,
    **kwargs: Any,
) -> Mapping[str, Any]:
    """Every split of a data set, by split name.

    `folder` is where the task file lies: data files named relative to it are found from anywhere.
    """
    if path is None:
        raise DataError("the task names no data set: set dataset_path or custom_dataset.")
    kwargs.pop("trust_remote_code", None)
    if path in FILE_FORMATS and "data_files" in kwargs:
        kwargs["data_files"] = _locate(kwargs["data_files"], folder)
        files = _single_json_files(path, kwargs)
        if files is not None:
            return {split: read_json(file) for split, file in files.items()}
    return _from_library(path, name, kwargs)


def _locate(data_files: Any, folder: Path | None) -> Any:
    """Paths relative to the task file, where such a file exists, made absolute."""
    if isinstance(data_files, Mapping):
        return {split: _locate(files, folder) for split, files in data_files.items()}
    if isinstance(data_files, (list, tuple)):
        return [_locate(file, folder) for file in data_files]
    if folder is not None and (folder / str(data_files)).exists():
        return str(folder / str(data_files))
    return data_files


def _single_json_files(path: str, kwargs: Mapping[str, Any]) -> dict[str, Path] | None:
    """The files by split, if plain local JSON files are all there is to it."""
    files = kwargs["data_files"]
    if path != "json" or len(kwargs) != 1:
        return None
    by_split = files if isinstance(files, Mapping) else {"train": files}
    plain = {split: str(file) for split, file in by_split.items() if isinstance(file, (str, Path))}
    if len(plain) != len(by_split):
        return None
    for file in plain.values():
        if "://" in file or "*" in file or Path(file).suffix not in JSON_SUFFIXES:
            return None
    return {split: Path(file) for split, file in plain.items()}


def _from_library(path: str, name: str | None, kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
    import datasets

    try:
        loaded = datasets.load_dataset(path=path, name=name, **kwargs)
    except EvalError:
        raise
    except Exception as error:
        shown = f"{path} ({name})" if name else path
        reason = (str(error).strip().splitlines() or [""])[0]
        raise DataError(
            f"the data set {shown} cannot be loaded: {type(error).__name__}: {reason}"
        ) from error
    if not isinstance(loaded, Mapping):
        raise DataError(
            f"the data set {path} came as a single split; leave `split` out of dataset_kwargs."
        )
    return loaded
