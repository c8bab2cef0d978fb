"""Reads documents from data files.

Plain JSON and Parquet files are read here; everything else is left to the `datasets` library.
"""

from __future__ import annotations

import bz2
import glob
import gzip
import json
import lzma
import re
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from lm_eval.data.library import explain, load_dataset
from lm_eval.data.parquet import read_parquet
from lm_eval.data.rows import Rows, missing_file_error
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError, at

#: Values of `dataset_path` that are a file format instead of the name of a dataset.
FORMATS = (
    *("json", "jsonl", "csv", "parquet", "text", "arrow", "xml", "webdataset"),
    *("imagefolder", "audiofolder", "videofolder"),
)
#: Formats that have another name in the `datasets` library.
_SYNONYMS = {"jsonl": "json"}
#: How many files of a folder are checked before the library reads it.
_MOST_CHECKED = 10_000
_JSON_SUFFIXES = (".json", ".jsonl")
#: Prefixes of files on a server or on the hub (`hf://datasets/org/name/file`).
_REMOTE = ("http://", "https://", "hf://")


def _open_zst(path: Path) -> Any:
    import pyarrow

    return pyarrow.input_stream(str(path), compression="zstd")


_OPENERS: dict[str, Callable[[Path], Any]] = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    ".zst": _open_zst,
}
_NON_SPACE = re.compile(r"\S")
#: Text that the library would convert to a timestamp.
_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}([ T]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?.*)?\s*")


def load_files(path: str, name: str | None, kwargs: dict[str, Any], folder: Path | None) -> Splits:
    """Returns the splits in the files that `data_files` or `data_dir` of `kwargs` names.

    Args:
        path: the file format, one of `FORMATS`.
        name: the name of a configuration, for the `datasets` library.
        kwargs: the arguments of `datasets.load_dataset` (`dataset_kwargs` of the task).
        folder: the folder of the task file. Relative paths are searched there first, then in the
            working directory.

    Raises:
        DataError: `kwargs` names no files, or a file is missing or cannot be read. For Parquet
            files, this is raised when the split is accessed.
    """
    if not kwargs.get("data_files") and not kwargs.get("data_dir"):
        raise DataError(
            f"dataset_path {path!r} is a file format, but the task names no files. Add "
            "`dataset_kwargs: {data_files: {test: FILE}}`."
        )
    _check_names(kwargs)
    kwargs = locate(kwargs, folder)
    check_regular(kwargs)
    origin, searched = Origin("files", path, name), searched_folders(folder)
    plain = _plain_files(kwargs)
    if path == "parquet" and plain is not None:
        return Splits(
            origin,
            {split: partial(_read_parquet, f, searched) for split, f in plain.items()},
        )
    for files in (plain or {}).values():
        _check_exists(files, searched)
    if path in ("json", "jsonl") and plain is not None:
        rows = {split: _read_plain_json(files) for split, files in plain.items()}
        if all(split is not None for split in rows.values()):
            return Splits.of(origin, rows)
    try:
        return Splits.of(origin, load_dataset(_SYNONYMS.get(path, path), name, kwargs))
    except Exception as error:
        named = kwargs.get("data_files") or kwargs.get("data_dir")
        missing = isinstance(error, FileNotFoundError) or _has_pattern_without_match(kwargs)
        if missing and remote_file(kwargs) is None:
            raise missing_file_error(named, searched) from error
        reason = explain(error)
        if "zstd" in reason:
            reason += "; install the missing package with `pip install zstandard`"
        raise DataError(f"{named}: cannot be read as {path}: {reason}") from error


def searched_folders(folder: Path | None) -> list[Path]:
    """Returns the folders in which relative paths are searched.

    They are the folder of the task file, if given, and the working directory.
    """
    return list(dict.fromkeys([*([folder] if folder is not None else []), Path.cwd()]))


def _check_names(kwargs: Mapping[str, Any]) -> None:
    """Raises `DataError` if `data_files` or `data_dir` contains anything but names of files."""
    files = kwargs.get("data_files")
    named = [
        *(files.values() if isinstance(files, Mapping) else [files]),
        kwargs.get("data_dir"),
    ]
    for entry in named:
        for name in entry if isinstance(entry, (list, tuple)) else [entry]:
            if name is not None and not (isinstance(name, (str, Path)) and "\0" not in str(name)):
                raise DataError(
                    "data_files and data_dir of dataset_kwargs must be names of files, not "
                    f"{name!r}."
                )


def check_regular(kwargs: Mapping[str, Any]) -> None:
    """Raises `DataError` if a file that `data_files` or `data_dir` names is a pipe or a device.

    Reading it could block forever, or never end.
    """
    for named in _named_files(kwargs):
        if "://" not in named:
            matches = glob.iglob(named, recursive=True) if glob.has_magic(named) else [named]  # noqa: PTH207
            check_regular_files(map(Path, matches))
    if isinstance(kwargs.get("data_dir"), (str, Path)):
        check_regular_files(Path(kwargs["data_dir"]).rglob("*"))


def check_regular_files(files: Iterable[Path]) -> None:
    """Raises `DataError` if one of `files` is a pipe, a socket or a device.

    Only the first `_MOST_CHECKED` are looked at.
    """
    for file in islice(files, _MOST_CHECKED):
        try:
            mode = file.stat().st_mode
        except (OSError, ValueError):  # missing, or not a name: reported when it is read
            continue
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise DataError(
                f"{file}: not a regular file but a pipe, a socket or a device, which is not read "
                "as data. Name a file."
            )


def _check_exists(files: list[Path], searched: list[Path]) -> None:
    """Raises `DataError` if a file does not exist; for a relative path, it lists `searched`.

    Other problems, such as missing permissions, are ignored.
    """
    for file in files:
        try:
            file.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise missing_file_error(file, () if file.is_absolute() else searched) from error
        except OSError:
            pass  # reading the file will raise the error


def _read_parquet(files: list[Path], searched: list[Path]) -> Any:
    _check_exists(files, searched)
    return read_parquet(files)


def locate(kwargs: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """Returns `kwargs` with `data_files` and `data_dir` resolved relative to the task's folder.

    A path stays as it is if it is absolute, a URL, or does not exist in `folder`, or if `folder` is
    None.
    """
    found = dict(kwargs)
    for key in ("data_files", "data_dir"):
        if found.get(key) is not None:
            found[key] = _locate(found[key], folder)
    return found


def _locate(named: Any, folder: Path | None) -> Any:
    if isinstance(named, Mapping):
        return {split: _locate(files, folder) for split, files in named.items()}
    if isinstance(named, (list, tuple)):
        return [_locate(file, folder) for file in named]
    text = str(named)
    if folder is None or "://" in text or Path(text).is_absolute():
        return named
    exists = (folder / text).exists() or ("*" in text and any(folder.glob(text)))
    return str(folder / text) if exists else named


def remote_file(kwargs: Mapping[str, Any]) -> str | None:
    """Returns the first of the `data_files` that is a URL (http, https or hf); None if none is."""
    return next((file for file in _named_files(kwargs) if file.startswith(_REMOTE)), None)


def _named_files(kwargs: Mapping[str, Any]) -> list[str]:
    """Returns every file or pattern in `data_files`, for all splits, as strings."""
    files = kwargs.get("data_files")
    named = files.values() if isinstance(files, Mapping) else [files]
    flat = [f for entry in named for f in (entry if isinstance(entry, (list, tuple)) else [entry])]
    return [str(file) for file in flat]


def _has_pattern_without_match(kwargs: Mapping[str, Any]) -> bool:
    """Returns whether one of the patterns (`*.json`) in `data_files` matches no file."""
    patterns = [file for file in _named_files(kwargs) if glob.has_magic(file)]
    return any(not glob.glob(pattern, recursive=True) for pattern in patterns)  # noqa: PTH207


def _plain_files(kwargs: Mapping[str, Any]) -> dict[str, list[Path]] | None:
    """Returns the local files by split, or None if only the `datasets` library can resolve them.

    None if `kwargs` contains more than `data_files`, or a file is a URL or a pattern. Files without
    a split belong to `train`. It is not checked whether they exist.
    """
    if set(kwargs) != {"data_files"}:
        return None
    named = kwargs["data_files"]
    by_split = named if isinstance(named, Mapping) else {"train": named}
    found: dict[str, list[Path]] = {}
    for split, files in by_split.items():
        listed = list(files) if isinstance(files, (list, tuple)) else [files]
        if not all(isinstance(file, (str, Path)) for file in listed):
            return None
        if any("://" in str(file) or re.search(r"[*?\[]", str(file)) for file in listed):
            return None
        found[str(split)] = [Path(file).expanduser() for file in listed]
    return found


# -- JSON, without importing the datasets library -------------------------------------------


class NotPlainError(Exception):
    """Raised for JSON whose values the `datasets` library would read differently from us."""


def _read_plain_json(files: list[Path]) -> Rows | None:
    """Returns the documents of JSON files, or None if the `datasets` library must read them.

    It must if it would give other values, or if a file name does not end in `.json` or `.jsonl`
    (and an ending of compression). Raises `DataError` if a file cannot be read.
    """
    rows: list[Any] = []
    for file in files:
        suffixes = [s for s in file.suffixes if s not in _OPENERS]
        if not suffixes or suffixes[-1] not in _JSON_SUFFIXES:
            return None
        try:
            rows += read_json(file)
        except NotPlainError:
            return None
    documents = Rows(rows)
    columns = ([row[name] for row in documents] for name in documents.column_names)
    return documents if all(uniform(column) for column in columns) else None


def read_json(path: Path) -> list[Any]:
    """Returns the documents of a JSON file: one object per line, or one list of objects.

    The file may be compressed (`.gz`, `.bz2`, `.xz`, `.zst`). Raises `NotPlainError` if the
    `datasets` library must read it, and `DataError` if it is missing, unreadable, empty, not valid
    JSON, or has documents that are not objects.
    """
    opener = _OPENERS.get(path.suffix)
    try:
        if opener is None:
            text = path.read_text(encoding="utf-8-sig")
        else:
            with opener(path) as file:
                text = file.read().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise missing_file_error(path) from error
    except PermissionError as error:
        raise DataError(
            f"{path}: the file cannot be read (permission denied). Check its permissions."
        ) from error
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise DataError(
            f"{path}: cannot be read as text ({error}). It must be UTF-8, and compressed as the "
            "ending of its name says."
        ) from error
    if not text.strip():
        raise DataError(f"{path}: the file is empty; it must contain documents as JSON.")
    if text.lstrip().startswith("["):
        if re.search(r"\d\.\d{10}|\d[eE]", text):
            raise NotPlainError  # `datasets` rounds floats in a list
        rows = _parse(text, path, 1)
    else:
        lines = enumerate(text.split("\n"), start=1)
        try:
            rows = [_parse(line, path, number) for number, line in lines if line.strip()]
        except DataError:
            if _are_objects(text):
                raise NotPlainError from None  # one object on several lines, or several on one
            raise
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(
                f"{path}: document {number} (counted from 0) must be a JSON object, not {row!r}."
            )
    return list(rows)


def _parse(text: str, path: Path, line: int) -> Any:
    """Returns the parsed JSON `text`, of which `line` is the number of the first line in `path`.

    Raises `DataError`, with the file and line, if it is not valid JSON.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = at(path, line + error.lineno - 1)
        raise DataError(f"{where}: not valid JSON: {error.msg}.") from error
    except (RecursionError, ValueError) as error:
        raise DataError(
            f"{at(path, line)}: this JSON is nested too deeply, or has a number with too many "
            f"digits ({error}). Simplify or remove this entry."
        ) from error


def _are_objects(text: str) -> bool:
    """Returns whether the text is a sequence of JSON objects, with any whitespace in between."""
    decoder, place = json.JSONDecoder(), 0
    try:
        while found := _NON_SPACE.search(text, place):
            value, place = decoder.raw_decode(text, found.start())
            if not isinstance(value, dict):
                return False
    except (ValueError, RecursionError):
        return False
    return True


def uniform(values: list[Any]) -> bool:
    """Returns whether `datasets` would keep the values of a column unchanged.

    That is so if all values have the same type, also inside lists and objects, and the first string
    is not a date; None is ignored. Otherwise the library converts them: integers among floats to
    floats, dates to timestamps, and objects with different keys to objects with all keys.
    """
    values = [value for value in values if value is not None]
    kinds = set(map(type, values))
    if not kinds:
        return True
    if len(kinds) > 1:
        return False
    kind = kinds.pop()
    if kind is str:
        return not _DATE.fullmatch(values[0])
    if kind is list:
        return uniform([item for value in values for item in value])
    if kind is dict:
        keys = values[0].keys()
        return all(value.keys() == keys for value in values) and all(
            uniform([value[key] for value in values]) for key in keys
        )
    return True
