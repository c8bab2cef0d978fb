"""Documents in local files: plain JSON and Parquet read here, other formats by the library."""

from __future__ import annotations

import bz2
import glob
import gzip
import json
import lzma
import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval.data.library import explain, load_dataset
from lm_eval.data.parquet import read_parquet
from lm_eval.data.rows import Rows, no_file
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError, at

#: `dataset_path` values that name a file format instead of a data set.
FORMATS = (
    *("json", "jsonl", "csv", "parquet", "text", "arrow", "xml", "pandas", "webdataset"),
    *("imagefolder", "audiofolder", "videofolder"),
)
#: Formats that the library knows by another name.
_SYNONYMS = {"jsonl": "json"}
_JSON_SUFFIXES = (".json", ".jsonl")
#: How the names of files begin that a server or the hub (`hf://datasets/org/name/file`) has.
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
_NOT_SPACE = re.compile(r"\S")
#: Text that the library would read as a moment in time.
_DATE = re.compile(r"\s*\d{4}-\d{2}-\d{2}([ T]\d{2}(:\d{2}(:\d{2}(\.\d+)?)?)?.*)?\s*")


def load_files(path: str, name: str | None, kwargs: dict[str, Any], folder: Path | None) -> Splits:
    """The splits that `data_files` (or `data_dir`) names."""
    if not kwargs.get("data_files") and not kwargs.get("data_dir"):
        raise DataError(
            f"dataset_path {path!r} names a file format: say which files, as "
            "`dataset_kwargs: {data_files: {test: FILE}}`."
        )
    kwargs = locate(kwargs, folder)
    origin, searched = Origin("files", path, name), searched_folders(folder)
    plain = _plain_files(kwargs)
    if path == "parquet" and plain is not None:
        return Splits(
            origin,
            {split: partial(_read_parquet, f, searched) for split, f in plain.items()},
        )
    for files in (plain or {}).values():
        _check_there(files, searched)
    if path in ("json", "jsonl") and plain is not None:
        rows = {split: _quick_json(files) for split, files in plain.items()}
        if all(split is not None for split in rows.values()):
            return Splits.of(origin, rows)
    try:
        return Splits.of(origin, load_dataset(_SYNONYMS.get(path, path), name, kwargs))
    except Exception as error:
        named = kwargs.get("data_files") or kwargs.get("data_dir")
        missing = isinstance(error, FileNotFoundError) or _match_nothing(kwargs)
        if missing and remote_file(kwargs) is None:
            raise no_file(named, searched) from error
        reason = explain(error)
        if "zstd" in reason:
            reason += "; `pip install zstandard` helps"
        raise DataError(f"{named}: cannot be read as {path}: {reason}") from error


def searched_folders(folder: Path | None) -> list[Path]:
    """Returns where a relative path is looked for: beside the task file, and in this folder."""
    return list(dict.fromkeys([*([folder] if folder is not None else []), Path.cwd()]))


def _check_there(files: list[Path], searched: list[Path]) -> None:
    for file in files:
        try:
            file.stat()
        except (FileNotFoundError, NotADirectoryError) as error:
            raise no_file(file, () if file.is_absolute() else searched) from error
        except OSError:
            pass  # reading it will tell


def _read_parquet(files: list[Path], searched: list[Path]) -> Any:
    _check_there(files, searched)
    return read_parquet(files)


def locate(kwargs: Mapping[str, Any], folder: Path | None) -> dict[str, Any]:
    """The arguments with paths relative to the task file made absolute, where something is."""
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
    there = (folder / text).exists() or ("*" in text and any(folder.glob(text)))
    return str(folder / text) if there else named


def remote_file(kwargs: Mapping[str, Any]) -> str | None:
    """A data file that is not on this machine, if there is one."""
    return next((file for file in _named_files(kwargs) if file.startswith(_REMOTE)), None)


def _named_files(kwargs: Mapping[str, Any]) -> list[str]:
    """Every file or pattern that `data_files` names."""
    files = kwargs.get("data_files")
    named = files.values() if isinstance(files, Mapping) else [files]
    flat = [f for entry in named for f in (entry if isinstance(entry, (list, tuple)) else [entry])]
    return [str(file) for file in flat]


def _match_nothing(kwargs: Mapping[str, Any]) -> bool:
    """Whether a pattern among the data files matches no file."""
    patterns = [file for file in _named_files(kwargs) if glob.has_magic(file)]
    return any(not glob.glob(pattern, recursive=True) for pattern in patterns)  # noqa: PTH207


def _plain_files(kwargs: Mapping[str, Any]) -> dict[str, list[Path]] | None:
    """Local files by split, if they are all there is to it."""
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


# -- JSON, without importing a table library for it -------------------------------------------


class NotPlainError(Exception):
    """JSON of which the library makes something else than its text says."""


def _quick_json(files: list[Path]) -> Rows | None:
    """The documents, or None where the library would make other values of them."""
    rows: list[Any] = []
    for file in files:
        suffixes = [s for s in file.suffixes if s not in _OPENERS]
        if not suffixes or suffixes[-1] not in _JSON_SUFFIXES:
            return None
        try:
            rows += read_json(file)
        except NotPlainError:
            return None
    made = Rows(rows)
    columns = ([row[name] for row in made] for name in made.column_names)
    return made if all(uniform(column) for column in columns) else None


def read_json(path: Path) -> list[Any]:
    """One document a line, or one list of documents."""
    opener = _OPENERS.get(path.suffix)
    try:
        if opener is None:
            text = path.read_text(encoding="utf-8-sig")
        else:
            with opener(path) as file:
                text = file.read().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise no_file(path) from error
    except PermissionError as error:
        raise DataError(f"{path}: may not be read (permission denied).") from error
    except (OSError, EOFError, UnicodeDecodeError, lzma.LZMAError) as error:
        raise DataError(f"{path}: cannot be read as text ({error}).") from error
    if not text.strip():
        raise DataError(f"{path}: the file is empty.")
    if text.lstrip().startswith("["):
        if re.search(r"\d\.\d{10}|\d[eE]", text):
            raise NotPlainError  # the library rounds fractions in a list
        rows = _parse(text, path, 1)
    else:
        lines = enumerate(text.split("\n"), start=1)
        try:
            rows = [_parse(line, path, number) for number, line in lines if line.strip()]
        except DataError:
            if _are_objects(text):
                raise NotPlainError from None  # over several lines, or several in one
            raise
    for number, row in enumerate(rows):
        if not isinstance(row, dict):
            raise DataError(f"{path}: document {number} is not an object: {row!r}.")
    return list(rows)


def _parse(text: str, path: Path, line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        where = at(path, line + error.lineno - 1)
        raise DataError(f"{where}: not valid JSON: {error.msg}.") from error
    except (RecursionError, ValueError) as error:
        raise DataError(f"{at(path, line)}: cannot be read: {error}.") from error


def _are_objects(text: str) -> bool:
    """Whether the text is objects one after another, however they are laid out."""
    decoder, place = json.JSONDecoder(), 0
    try:
        while found := _NOT_SPACE.search(text, place):
            value, place = decoder.raw_decode(text, found.start())
            if not isinstance(value, dict):
                return False
    except (ValueError, RecursionError):
        return False
    return True


def uniform(values: list[Any]) -> bool:
    """Whether a column can stand as it is: of one kind throughout, and no dates.

    Of other columns the library makes something else: of whole numbers among fractions fractions,
    of dates moments in time, of tables with different keys tables with all of them.
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
