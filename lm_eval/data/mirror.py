"""A mirror: a folder with copies of datasets that is used instead of the hub.

The files are `<org>/<name>/<config>/<split>.parquet`. The config of a dataset without configs is
`default`. If a task selects files of a dataset (`data_files`, `data_dir`), the folder of the config
is `<config>@<hash of the selection>`. A split may consist of several files, named as on the hub
(`train-00000-of-00002.parquet`). An optional `source.json` in the same folder contains the
revision, and the number and hash of the rows of each split, which are checked.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from lm_eval.data.fingerprint import fingerprint
from lm_eval.data.parquet import read_parquet
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError, suggestion

#: The environment variable with the path of the mirror.
VARIABLE = "LMEVAL_DATA_DIR"
SOURCE_FILE = "source.json"
LAYOUT = "<org>/<name>/<config>/<split>.parquet"
_PART = re.compile(r"(?P<split>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})")
_HUB_NAME = re.compile(r"[\w.-]*\w[\w.-]*(/[\w.-]*\w[\w.-]*)?")
#: Arguments of `load_dataset` that select files of a dataset.
_FILE_ARGUMENTS = ("data_dir", "data_files")

_selected_mirror: ContextVar[str | None] = ContextVar("mirror", default=None)


@contextlib.contextmanager
def mirror_at(folder: str | Path | None) -> Iterator[None]:
    """Uses the mirror at `folder` inside the `with` block, before the hub.

    None keeps the present choice: that of an enclosing block, or of `LMEVAL_DATA_DIR`. Raises
    `DataError` if the folder is not a mirror.
    """
    if folder is not None:
        Mirror(Path(folder).expanduser()).check(f"--data_dir {folder}")
    token = _selected_mirror.set(str(folder) if folder is not None else _selected_mirror.get())
    try:
        yield
    finally:
        _selected_mirror.reset(token)


def current_mirror() -> Mirror | None:
    """Returns the mirror set by `mirror_at` or else `LMEVAL_DATA_DIR`; None if neither is set.

    Raises `DataError` if the folder in `LMEVAL_DATA_DIR` is not a mirror.
    """
    selected = _selected_mirror.get()
    if selected is not None:
        return Mirror(Path(selected).expanduser())
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    mirror = Mirror(Path(named).expanduser())
    mirror.check(f"{VARIABLE}={named}")
    return mirror


def is_hub_name(path: str) -> bool:
    """Returns whether `path` has the form of a dataset name on the hub: `name` or `org/name`."""
    return bool(_HUB_NAME.fullmatch(path))


def selected_files(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the items of `kwargs` that select files of a dataset: `data_dir` and `data_files`.

    Items that are None are left out.
    """
    return {key: kwargs[key] for key in _FILE_ARGUMENTS if kwargs.get(key) is not None}


def folder_name(name: str | None, kwargs: Mapping[str, Any]) -> str:
    """Returns the name of a config's folder in a mirror; `default` if `name` is None or empty.

    Slashes in `name` become `%2F`. If `kwargs` selects files of the dataset (`data_files`,
    `data_dir`), `@` and a hash of the selection are appended.
    """
    config = re.sub(r"[/\\]", "%2F", name or "default")
    config = config.replace(".", "%2E") if config in (".", "..") else config
    selection = selected_files(kwargs)
    if not selection:
        return config
    text = json.dumps(selection, sort_keys=True, default=str)
    return f"{config}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Mirror:
    """A mirror at the folder `root`."""

    root: Path

    def check(self, option: str) -> None:
        """Raises `DataError` if `root` is not a mirror.

        `option` is how the user has set the mirror (`--data_dir DIR`); the message begins with it.
        """
        if not self.root.is_dir():
            kind = "is a file" if self.root.exists() else "does not exist"
            raise DataError(f"{option}: a mirror must be a folder, but this path {kind}.")
        for pattern in ("*/*/*/*.parquet", "*/*/*.parquet"):
            if next(self.root.glob(pattern), None) is not None:
                return
        raise DataError(
            f"{option}: this folder is not a mirror: it contains no {LAYOUT}. Create a mirror with "
            "`lm-eval fetch --tasks … --to DIR`."
        )

    def find(self, path: str, name: str | None, kwargs: Mapping[str, Any]) -> Splits | None:
        """Returns the splits of a dataset; None if the mirror does not contain it.

        The arguments are those of `load.load_splits`. Returns None also if `kwargs` selects files
        that are not mirrored. Raises `DataError` if the mirror has the dataset, but not this config
        or revision, or if a name without owner is ambiguous. Rows are read when a split is
        accessed.
        """
        dataset_folder = self._dataset_folder(path)
        if dataset_folder is None:
            return None
        config = self._config_folder(dataset_folder, name, kwargs)
        if config is None:
            return None
        files = split_files(config)
        if not files:
            raise DataError(
                f"{config}: this folder of the mirror contains no splits (no {LAYOUT}). Fetch the "
                "dataset again."
            )
        shown = dataset_folder.relative_to(self.root).as_posix()
        source = read_source(config)
        origin = Origin("mirror", shown, name, _revision(config, source, kwargs.get("revision")))
        recorded = _recorded_splits(config, source)
        readers = {
            split: partial(_read_split, split, parts, recorded.get(split))
            for split, parts in files.items()
        }
        return Splits(origin, readers)

    def has(
        self, path: str, name: str | None, kwargs: Mapping[str, Any], splits: Iterable[str]
    ) -> bool:
        """Returns whether the mirror contains these splits of a dataset. Reads no rows.

        The other arguments are those of `find`. False also if the mirror has another config or
        revision.
        """
        try:
            found = self.find(path, name, kwargs)
        except DataError:  # the dataset exists, but not this config or revision
            return False
        return found is not None and all(split in found for split in splits)

    def _dataset_folder(self, path: str) -> Path | None:
        """Returns the folder of a dataset; None if the mirror does not contain it.

        A name without owner (`squad`), as in older tasks, is found if exactly one owner in the
        mirror has a dataset of that name. Raises `DataError` if several have.
        """
        dataset_folder = self.root / path
        if dataset_folder.is_dir() and ("/" in path or _configs(dataset_folder)):
            return dataset_folder
        if "/" in path:
            return None
        owned = [folder for folder in sorted(self.root.glob(f"*/{path}")) if folder.is_dir()]
        if len(owned) > 1:
            names = ", ".join(folder.relative_to(self.root).as_posix() for folder in owned)
            raise DataError(
                f"{path!r} is ambiguous: the mirror {self.root} contains {names}. Set "
                "dataset_path to one of them."
            )
        return owned[0] if owned else None

    def _config_folder(
        self, dataset_folder: Path, name: str | None, kwargs: Mapping[str, Any]
    ) -> Path | None:
        """Returns the folder of a config; None if the task selects files that are not mirrored.

        If `name` is None, the dataset's only config is used. Raises `DataError` if there is no
        config of that name.
        """
        exact = dataset_folder / folder_name(name, kwargs)
        if exact.is_dir():
            return exact
        if selected_files(kwargs):
            return None  # the mirror may contain other files of the dataset
        configs = _configs(dataset_folder)
        if name is None and len(configs) == 1:
            return dataset_folder / configs[0]  # as on the hub
        problem = (
            f"no config {name!r}"
            if name
            else "no `default` config, and the task sets no dataset_name"
        )
        raise DataError(
            f"{dataset_folder.relative_to(self.root).as_posix()} in {self.root} has {problem}."
            f"{suggestion(name or '', configs)} It has: {', '.join(configs) or 'none'}. Set "
            "dataset_name to one of these, or fetch the config into the mirror."
        )


def split_files(config: Path) -> dict[str, list[Path]]:
    """Returns the Parquet files of each split in the folder of a config, sorted by name.

    The file `train-00000-of-00002.parquet` belongs to the split `train`. Empty if there are none.
    Raises `DataError` if the folder cannot be read, or if a file of a split is missing.
    """
    found: dict[str, list[Path]] = {}
    try:
        files = sorted(config.glob("*.parquet"))
    except OSError as error:
        raise DataError(
            f"{config}: this folder of the mirror cannot be read ({error.strerror}). Check its "
            "permissions."
        ) from error
    for file in files:
        part = _PART.fullmatch(file.stem)
        found.setdefault(part["split"] if part else file.stem, []).append(file)
    for split, parts in found.items():
        _check_parts(split, parts)
    return found


def _configs(dataset_folder: Path) -> list[str]:
    """Returns the sorted names of a dataset's configs in the mirror.

    These are the folders in `dataset_folder` that directly contain Parquet files.
    """
    return sorted({file.parent.name for file in dataset_folder.glob("*/*.parquet")})


def _check_parts(split: str, files: list[Path]) -> None:
    """Raises `DataError` unless the files of a split are one file, or all of its numbered parts."""
    parts = [_PART.fullmatch(file.stem) for file in files]
    if parts == [None]:
        return
    if None in parts or len({part["count"] for part in parts if part}) > 1:
        names = ", ".join(file.name for file in files)
        raise DataError(
            f"{files[0].parent}: the files of the split {split!r} do not belong together "
            f"({names}). Remove the files of an older copy, or fetch the dataset again."
        )
    count = int(parts[0]["count"]) if parts[0] else 0
    present = {int(part["number"]) for part in parts if part}
    missing = [number for number in range(count) if number not in present]
    if missing or len(present) != count:
        raise DataError(
            f"{files[0].parent}: the split {split!r} has {len(present)} of {count} files; "
            f"{split}-{(missing or [0])[0]:05}-of-{count:05}.parquet is missing. Copy or fetch the "
            "dataset again."
        )


def _recorded_splits(config: Path, source: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the number and hash of the rows of each split that `source.json` records, by name.

    Empty if there is no such file, or if it records none. Raises `DataError` if it is damaged, or
    if the file of a recorded split is missing.
    """
    recorded = (source or {}).get("splits")
    if recorded is None:
        return {}
    if not isinstance(recorded, dict) or not all(isinstance(r, dict) for r in recorded.values()):
        raise DataError(
            f"{config / SOURCE_FILE}: `splits` must be an object with `rows` and `fingerprint` of "
            "each split. Fetch the dataset again."
        )
    missing = [split for split in recorded if split not in split_files(config)]
    if missing:
        raise DataError(
            f"{config}: the file {missing[0]}.parquet is missing, which {SOURCE_FILE} lists. Copy "
            "or fetch the dataset again."
        )
    return recorded


def _read_split(split: str, files: list[Path], recorded: Mapping[str, Any] | None) -> Any:
    """Returns the rows of a split; `recorded` is its entry in `source.json`, or None.

    Raises `DataError` if a file is damaged, or if the rows are not those that were recorded.
    """
    rows = read_parquet(files)
    known = {key: (recorded or {}).get(key) for key in ("rows", "fingerprint")}
    if known["rows"] is not None and known["rows"] != len(rows):
        found = f"{len(rows)} rows instead of {known['rows']}"
    elif known["fingerprint"] is not None and known["fingerprint"] != fingerprint(rows):
        found = "other rows"
    else:
        return rows
    raise DataError(
        f"{files[0]}: the split {split!r} has {found}, compared with {SOURCE_FILE} beside it: the "
        "file was changed or damaged. Copy or fetch the dataset again (`lm-eval fetch --force`)."
    )


def _revision(config: Path, source: Mapping[str, Any] | None, pinned: Any) -> str | None:
    """Returns the revision in `source`, the `source.json` of a config's folder; None if unknown.

    `pinned` is the revision that the task requires, or None. Raises `DataError` if the mirror has
    another one. Without a `source.json`, it is not checked.
    """
    if source is None:
        return None
    revision, fetched_as = source.get("revision"), source.get("pinned")
    if pinned and pinned != fetched_as and not str(revision).startswith(str(pinned)):
        raise DataError(
            f"{config}: the mirror contains revision {revision or 'unknown'}, but the task "
            f"requires {pinned}. Fetch that revision into another mirror."
        )
    return revision


def read_source(config: Path) -> dict[str, Any] | None:
    """Returns the content of `source.json` in the folder of a config; None if there is none.

    Raises `DataError` if it cannot be read or is not a JSON object.
    """
    file = config / SOURCE_FILE
    try:
        source = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(
            f"{file}: cannot be read as JSON ({error}). Fetch the dataset again."
        ) from error
    if not isinstance(source, dict):
        raise DataError(
            f"{file}: must contain a JSON object, not {source!r}. Fetch the dataset again."
        )
    return source
