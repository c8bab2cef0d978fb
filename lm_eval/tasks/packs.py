"""Packs: task folders published by third parties, installed beside the bundled library.

A pack is a folder of task files, with a record of its source and a hash of every file. Adding a
pack copies its files and runs none of them. A pack whose files were changed afterwards cannot be
used. If two packs define the same task name, the pack that was added first keeps it, so adding a
pack never changes what a name means.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any

from lm_eval.errors import ConfigError, OutputError, UnknownNameError, suggestion
from lm_eval.tasks.pack_sources import absolute_source, default_name, fetch_source, task_files
from lm_eval.tasks.plugins import task_folders

logger = logging.getLogger(__name__)

#: Separates a pack's name from a task's, as in `pack:task`.
PACK_SEPARATOR = ":"
RECORD, HASHES, TASKS = "pack.json", "hashes.json", "tasks"
_KEYS = {"source", "version", "hash", "added", "used", "files"}
#: The prefix of temporary folders. One older than this many seconds was left by a killed process.
_SCRATCH, _STALE_SECONDS = ".adding-", 86_400


@dataclass(frozen=True)
class Pack:
    """An installed pack; `path` is its folder."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the pack, which is that of its folder."""
        return self.path.name

    @property
    def tasks(self) -> Path:
        """The folder of task files."""
        return self.path / TASKS

    def record(self) -> dict[str, Any]:
        """Returns the record of the pack, a dictionary with these keys.

        `source`; `version`, or None; `hash`, that of all files together; `files`, their number;
        `added`, in seconds since 1970; `used`, whether a task of the pack has ever been built.
        Raises `ConfigError` if the record is missing or damaged.
        """
        record = self._read(RECORD)
        if not record.keys() >= _KEYS:
            raise self._damaged(RECORD)
        return record

    def hashes(self) -> dict[str, str]:
        """Returns the SHA-256 hash of every file when the pack was added, by relative path.

        Raises `ConfigError` if the file of hashes is missing or damaged, or does not match the
        total hash in the record.
        """
        hashes = self._read(HASHES)
        if total_hash(hashes) != self.record()["hash"]:
            raise self._damaged(HASHES)
        return hashes

    def write(self, name: str, content: dict[str, Any]) -> None:
        """Writes `content` as JSON to the file `name` in the pack's folder.

        The file is replaced atomically, because another process may be reading it. Raises `OSError`
        if it cannot be written.
        """
        written = self.path / f".{name}.{os.getpid()}"
        written.write_text(json.dumps(content, indent=1), encoding="utf-8")
        written.replace(self.path / name)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise self._damaged(name) from error
        if not isinstance(content, dict):
            raise self._damaged(name)
        return content

    def _damaged(self, name: str) -> ConfigError:
        return ConfigError(
            f"{self.path / name}: the file is damaged; run `lm-eval packs remove {self.name}` and "
            "add the pack again."
        )


def packs_folder() -> Path:
    """Returns `$LMEVAL_PACKS_DIR`, or `lm_eval/packs` in the user's data folder if unset.

    The user's data folder is `$XDG_DATA_HOME`, or else `~/.local/share`. The folder may not exist.
    """
    custom = os.environ.get("LMEVAL_PACKS_DIR")
    if custom:
        return _without_links(custom)
    base = os.environ.get("XDG_DATA_HOME")
    return _without_links(f"{base or '~/.local/share'}/lm_eval/packs")


@lru_cache(maxsize=8)
def _without_links(folder: str) -> Path:
    """Returns a folder as an absolute path without links; `~` is the user's home folder.

    Every task that is built asks whether it belongs to a pack, so the answer is remembered.
    """
    return Path(folder).expanduser().resolve()


def installed() -> list[Pack]:
    """Returns all installed packs in the order in which they were added; an empty list if none.

    Packs with an unreadable record come last.
    """
    folder = packs_folder()
    if not folder.is_dir():
        return []
    found = [
        Pack(path)
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and (path / RECORD).is_file()
    ]
    return sorted(found, key=_added_at)


def _added_at(pack: Pack) -> float:
    """Returns when the pack was added, in seconds since 1970; now if it has no readable record."""
    try:
        return float(pack.record()["added"])
    except (ConfigError, TypeError, ValueError):  # reported when the pack is used
        return time.time()


def find(name: str) -> Pack:
    """Returns the installed pack called `name`; raises `UnknownNameError` if there is none."""
    for pack in installed():
        if pack.name == name:
            return pack
    names = [pack.name for pack in installed()]
    raise UnknownNameError(
        f"there is no pack {name!r}.{suggestion(name, names)} "
        f"Installed packs: {', '.join(names) or 'none'}. `lm-eval packs add SOURCE` adds one."
    )


# -- adding and removing ----------------------------------------------------------------------


def add(
    source: str, name: str | None = None, expected: str | None = None, replace: bool = False
) -> Pack:
    """Installs a pack: fetches `source` and copies its task files, all of them or none.

    Args:
        source: a package (`pypi:PACKAGE==VERSION`), a repository (`git+URL@COMMIT`), a folder or
            an archive.
        name: the name of the pack; by default derived from `source`.
        expected: the SHA-256 hash that the task files must have; not checked if None.
        replace: whether to replace an installed pack of the same name.

    Raises:
        ConfigError: the source cannot be fetched, the hash differs, or the name is invalid or,
            without `replace`, already used.
        OutputError: the folder of packs cannot be written.
    """
    pack_name = default_name(source) if name is None else name
    if not re.fullmatch(r"\w[\w.\-]*", pack_name):
        raise ConfigError(
            f"a pack cannot be called {pack_name!r}; choose a --name of letters, digits, `_`, `-` "
            "and `.`."
        )
    target = packs_folder() / pack_name
    if not replace:
        _check_name_free(target)
    added = _added_at(Pack(target))
    with fetch_source(source) as (root, version):
        hashes = hash_files(root)
        total = total_hash(hashes)
        if expected is not None and expected.removeprefix("sha256:").lower() != total:
            raise ConfigError(
                f"{source}: its task files have the hash sha256:{total}, but sha256:"
                f"{expected.removeprefix('sha256:')} was expected. Nothing was added."
            )
        record = {
            "source": absolute_source(source),
            "version": version,
            "hash": total,
            "added": added,
            "used": False,
            "files": len(hashes),
        }
        with _scratch() as scratch:
            made = Pack(scratch / "new")
            for file in hashes:
                copy = made.tasks / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / file, copy)
            made.write(RECORD, record)
            made.write(HASHES, hashes)
            _move_into_place(made.path, target, scratch / "old" if replace else None)
    _clear_caches()
    return Pack(target)


def _check_name_free(target: Path) -> None:
    """Raises `ConfigError` if a pack or a plug-in already has the name of the folder `target`."""
    if target.name in task_folders():
        raise ConfigError(
            f"there is an installed plug-in {target.name!r}; give the pack another --name."
        )
    if target.exists():
        raise ConfigError(
            f"there is already a pack {target.name!r}; run `lm-eval packs update {target.name}`, "
            "remove it, or give this one another --name."
        )


def _move_into_place(made: Path, target: Path, old: Path | None) -> None:
    """Renames the folder `made` to `target`.

    With `old`, an existing `target` is moved there first, and moved back if the rename fails.
    Raises `ConfigError` if `target` exists and cannot be replaced, and `OSError` if the rename
    fails for another reason.
    """
    if old is not None and target.exists():
        target.rename(old)
    try:
        made.rename(target)
    except OSError:
        if old is not None and old.exists():
            old.rename(target)
        _check_name_free(target)  # another process may have added the pack in the meantime
        raise


@contextmanager
def _scratch() -> Iterator[Path]:
    """Context manager that yields a temporary folder on the same file system as the packs.

    The folder is deleted at the end. Raises `OutputError` if the folder of packs cannot be written;
    this includes any `OSError` inside the `with` block.
    """
    folder = packs_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
            yield Path(scratch)
    except OSError as error:
        raise OutputError(
            f"{folder}: packs cannot be stored there ({error.strerror or error}); set "
            "LMEVAL_PACKS_DIR to another folder."
        ) from error


def _remove_stale(folder: Path) -> None:
    """Deletes temporary folders older than a day, which killed processes left in `folder`."""
    for left in folder.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _STALE_SECONDS:
                shutil.rmtree(left)


def update(name: str) -> tuple[Pack, bool]:
    """Fetches a pack's source again and replaces the pack.

    Returns the pack and whether any of its files changed. Raises `UnknownNameError` if no pack has
    this name, and otherwise the errors of `add`; the old pack is then kept.
    """
    before = find(name).record()
    pack = add(before["source"], name, replace=True)
    return pack, pack.record()["hash"] != before["hash"]


def remove(name: str) -> None:
    """Uninstalls a pack.

    It is renamed before its files are deleted, so that a partly deleted pack is never loaded.
    Raises `UnknownNameError` if no pack has this name, and `OutputError` if it cannot be moved.
    """
    pack = find(name)
    with _scratch() as scratch:
        pack.path.rename(scratch / "old")
    _clear_caches()


def hash_files(root: Path) -> dict[str, str]:
    """Returns the SHA-256 hash of every file below `root`, by its path relative to `root`.

    Hidden files and folders and `__pycache__` are skipped. Paths have `/` on all systems.
    """
    return {path.relative_to(root).as_posix(): _hash(path) for path in task_files(root)}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def total_hash(hashes: dict[str, str]) -> str:
    """Returns one SHA-256 hash for all files, given the hash of each by path.

    The order of `hashes` does not matter.
    """
    text = "".join(f"{name}\n{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


# -- using ------------------------------------------------------------------------------------


def pack_of(path: str | Path | None) -> Pack | None:
    """Returns the pack that contains the file `path`; None if `path` is None or in no pack."""
    folder = packs_folder()
    if path is None or not Path(path).is_relative_to(folder):
        return None
    return Pack(folder / Path(path).relative_to(folder).parts[0])


def verify(pack: Pack, files: Iterable[Path]) -> None:
    """Raises `ConfigError` if files of a pack changed since it was added; called before code runs.

    Also if one of `files` is not in the pack.
    Compares the hashes of all Python files of the pack, and of all files in the same benchmark
    folders as `files`, the YAML files of a task. Logs a warning the first time that a task of the
    pack is used.
    """
    _check_code(pack)
    for file in files:
        if not file.is_relative_to(pack.tasks):
            raise ConfigError(
                f"{file}: a task of the pack {pack.name!r} includes this file, which is outside of "
                f"{pack.tasks}. A pack may only use its own files; remove it with `lm-eval packs "
                f"remove {pack.name}`."
            )
        first, *inside = file.relative_to(pack.tasks).parts
        _check_folder(pack, pack.tasks / first if inside else pack.tasks)
    record = pack.record()
    if not record["used"]:
        logger.warning(
            "code from the pack %s (%s) is run for the first time; use only packs that you trust.",
            pack.name,
            record["source"],
        )
        try:
            pack.write(RECORD, {**record, "used": True})
        except OSError:  # the warning is logged again next time
            logger.debug("%s: the record of the pack cannot be written.", pack.path)


@cache
def _hashes(pack: Pack) -> dict[str, str]:
    return pack.hashes()


@cache
def _check_code(pack: Pack) -> None:
    """Raises `ConfigError` if a Python file of a pack was changed or added after the pack was.

    Compiled code counts as Python. All files are checked, since any of them may import any other.
    Missing files are not noticed. Once it has succeeded, the check is not repeated in this process.
    """
    _check_hashes(pack, task_files(pack.tasks, tuple(all_suffixes())))


@cache
def _check_folder(pack: Pack, folder: Path) -> None:
    """Raises `ConfigError` if a file in `folder`, a benchmark of a pack, was changed or added.

    Missing files are not noticed. Once it has succeeded, the check is not repeated in this process.
    """
    _check_hashes(pack, task_files(folder))


def _clear_caches() -> None:
    """Forgets the results of earlier checks, because a pack was added, replaced or removed."""
    for checked in (_hashes, _check_code, _check_folder, _without_links):
        checked.cache_clear()


def _check_hashes(pack: Pack, files: Iterable[Path]) -> None:
    """Raises `ConfigError` if one of `files`, which are below `pack.tasks`, is not as it was added.

    That is so if its content differs, or if the pack did not have the file when it was added.
    """
    for file in files:
        if _hashes(pack).get(file.relative_to(pack.tasks).as_posix()) != _hash(file):
            raise ConfigError(
                f"{file}: was changed after the pack {pack.name!r} was added, or is new. Run "
                f"`lm-eval packs update {pack.name}` to fetch the pack again."
            )
