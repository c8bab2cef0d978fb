"""A folder that answers for the hub: `<org>/<name>/<config>/<split>.parquet`.

`default` stands for no config. Where a task picks files of a data set (`data_files`, `data_dir`),
what it picked lies under `<config>@<digest of the pick>`. A split may be cut into parts, named as
the hub names them (`train-00000-of-00002.parquet`). `source.json` beside the splits, if it is
there, says which revision they are.
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

from lm_eval.data.parquet import read_parquet
from lm_eval.data.splits import Origin, Splits
from lm_eval.errors import DataError, suggestion

VARIABLE = "LMEVAL_DATA_DIR"
SOURCE_FILE = "source.json"
LAYOUT = "<org>/<name>/<config>/<split>.parquet"
_PART = re.compile(r"(.+)-\d{5}-of-\d{5}")
_HUB_NAME = re.compile(r"[\w.-]*\w[\w.-]*(/[\w.-]*\w[\w.-]*)?")
#: Arguments of `load_dataset` that choose among a data set's files.
_PICKS = ("data_dir", "data_files")

_chosen: ContextVar[str | None] = ContextVar("mirror", default=None)


@contextlib.contextmanager
def mirror_at(folder: str | Path | None) -> Iterator[None]:
    """Let a mirror answer first while this lasts; None leaves it to `LMEVAL_DATA_DIR`."""
    if folder is not None:
        Mirror(Path(folder).expanduser()).check(f"--data_dir {folder}")
    token = _chosen.set(str(folder) if folder is not None else _chosen.get())
    try:
        yield
    finally:
        _chosen.reset(token)


def current_mirror() -> Mirror | None:
    """The mirror chosen by `mirror_at`, or the one the environment names."""
    chosen = _chosen.get()
    if chosen is not None:
        return Mirror(Path(chosen).expanduser())
    named = os.environ.get(VARIABLE)
    if not named:
        return None
    mirror = Mirror(Path(named).expanduser())
    mirror.check(f"{VARIABLE}={named}")
    return mirror


def is_hub_name(path: str) -> bool:
    """`name` or `org/name`: not a path that leads anywhere else."""
    return bool(_HUB_NAME.fullmatch(path))


def pick_of(kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What of a data set is asked for, where that is not all of it."""
    return {key: kwargs[key] for key in _PICKS if kwargs.get(key) is not None}


def folder_name(name: str | None, kwargs: Mapping[str, Any]) -> str:
    """What a config, or a pick from it, is called in a mirror."""
    config = re.sub(r"[/\\]", "%2F", name or "default")
    config = config.replace(".", "%2E") if config in (".", "..") else config
    picked = pick_of(kwargs)
    if not picked:
        return config
    text = json.dumps(picked, sort_keys=True, default=str)
    return f"{config}@{hashlib.sha256(text.encode()).hexdigest()[:12]}"


@dataclass(frozen=True)
class Mirror:
    """One such folder."""

    root: Path

    def check(self, asked: str) -> None:
        """Refuse, with the way it was asked for, a place that is no mirror."""
        if not self.root.is_dir():
            kind = "is a file" if self.root.exists() else "does not exist"
            raise DataError(f"{asked}: a mirror is a folder, and this {kind}.")
        for pattern in ("*/*/*/*.parquet", "*/*/*.parquet"):
            if next(self.root.glob(pattern), None) is not None:
                return
        raise DataError(
            f"{asked}: this is no mirror: it holds no {LAYOUT}. "
            "`lm-eval fetch --tasks … --to DIR` makes one."
        )

    def find(self, path: str, name: str | None, kwargs: Mapping[str, Any]) -> Splits | None:
        """A data set's splits; None if the mirror does not have it."""
        home = self._home(path)
        if home is None:
            return None
        config = self._config(home, name, kwargs)
        if config is None:
            return None
        files = split_files(config)
        if not files:
            raise DataError(f"{config}: the mirror has no split there: no {LAYOUT}.")
        shown = home.relative_to(self.root).as_posix()
        origin = Origin("mirror", shown, name, _revision(config, kwargs.get("revision")))
        readers = {split: partial(read_parquet, parts) for split, parts in files.items()}
        return Splits(origin, readers)

    def has(
        self, path: str, name: str | None, kwargs: Mapping[str, Any], splits: Iterable[str]
    ) -> bool:
        """Returns whether the mirror has these splits of a data set; reads no rows."""
        try:
            found = self.find(path, name, kwargs)
        except DataError:  # it has the data set, but not this config or revision
            return False
        return found is not None and all(split in found for split in splits)

    def _home(self, path: str) -> Path | None:
        """The folder of a data set. A name without its owner, as older tasks write it, is found
        under the owner if only one has such a data set."""
        home = self.root / path
        if home.is_dir() and ("/" in path or _configs(home)):
            return home
        if "/" in path:
            return None
        owned = [folder for folder in sorted(self.root.glob(f"*/{path}")) if folder.is_dir()]
        if len(owned) > 1:
            names = ", ".join(folder.relative_to(self.root).as_posix() for folder in owned)
            raise DataError(
                f"{path!r} could be any of {names} in {self.root}: write one of them as "
                "dataset_path."
            )
        return owned[0] if owned else None

    def _config(self, home: Path, name: str | None, kwargs: Mapping[str, Any]) -> Path | None:
        wanted = home / folder_name(name, kwargs)
        if wanted.is_dir():
            return wanted
        if pick_of(kwargs):
            return None  # the mirror has the data set, but perhaps other files of it
        there = _configs(home)
        if name is None and len(there) == 1:
            return home / there[0]  # the only one is meant, as on the hub
        asked = f"no config {name!r}" if name else "no `default` config, and the task names none"
        raise DataError(
            f"{home.relative_to(self.root).as_posix()} in {self.root} has {asked}."
            f"{suggestion(name or '', there)} It has: {', '.join(there) or 'none'}."
        )


def split_files(config: Path) -> dict[str, list[Path]]:
    """The files of each split, in order."""
    found: dict[str, list[Path]] = {}
    try:
        files = sorted(config.glob("*.parquet"))
    except OSError as error:
        raise DataError(f"{config}: cannot be looked into ({error.strerror}).") from error
    for file in files:
        part = _PART.fullmatch(file.stem)
        found.setdefault(part[1] if part else file.stem, []).append(file)
    return found


def _configs(home: Path) -> list[str]:
    return sorted({file.parent.name for file in home.glob("*/*.parquet")})


def _revision(config: Path, pinned: Any) -> str | None:
    """The revision the mirror says it holds. It must be the one a task pins."""
    source = read_source(config)
    if source is None:
        return None
    held, asked = source.get("revision"), source.get("pinned")
    if pinned and pinned != asked and not str(held).startswith(str(pinned)):
        raise DataError(
            f"{config}: the mirror holds revision {held or 'unknown'}, and the task pins {pinned}; "
            "fetch that one into another mirror."
        )
    return held


def read_source(config: Path) -> dict[str, Any] | None:
    """What `source.json` says, if it is there."""
    file = config / SOURCE_FILE
    try:
        source = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise DataError(f"{file}: cannot be read ({error}).") from error
    if not isinstance(source, dict):
        raise DataError(f"{file}: expected a table, not {source!r}.")
    return source
