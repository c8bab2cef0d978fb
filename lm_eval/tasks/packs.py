"""Packs: task folders that others have published, kept beside ours and found by name after them.

A pack is a folder of task files with a record of where it came from and a hash of every file.
Adding one copies files and runs none of them; a file that has changed since is refused. Of two
packs with one name, the older has it: what a name means does not change by adding.
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
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval.errors import ConfigError, OutputError, UnknownNameError, suggestion
from lm_eval.tasks.pack_sources import fetched, lasting, name_of, task_files

logger = logging.getLogger(__name__)

#: What parts a pack from a task's name.
PACK_MARK = ":"
RECORD, HASHES, TASKS = "pack.json", "hashes.json", "tasks"
_KEYS = {"source", "version", "hash", "added", "used", "files"}
#: What is under way has a name like this; what is as old as this many seconds was given up.
_SCRATCH, _GIVEN_UP = ".adding-", 86_400


@dataclass(frozen=True)
class Pack:
    """An installed pack."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def tasks(self) -> Path:
        return self.path / TASKS

    def record(self) -> dict[str, Any]:
        """Where it came from, and when."""
        record = self._read(RECORD)
        if not record.keys() >= _KEYS:
            raise self._damaged(RECORD)
        return record

    def hashes(self) -> dict[str, str]:
        """The hash of every file, as they were added."""
        hashes = self._read(HASHES)
        if total_hash(hashes) != self.record()["hash"]:
            raise self._damaged(HASHES)
        return hashes

    def write(self, name: str, content: dict[str, Any]) -> None:
        """All of it or nothing: another run may be reading it."""
        written = self.path / f".{name}.{os.getpid()}"
        written.write_text(json.dumps(content, indent=1), encoding="utf-8")
        written.replace(self.path / name)

    def _read(self, name: str) -> dict[str, Any]:
        try:
            content = json.loads((self.path / name).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise self._damaged(name) from error
        if not isinstance(content, dict):
            raise self._damaged(name)
        return content

    def _damaged(self, name: str) -> ConfigError:
        return ConfigError(
            f"{self.path / name}: is damaged; `lm-eval packs remove {self.name}`, and add the "
            "pack anew."
        )


def packs_folder() -> Path:
    """`$LMEVAL_PACKS_DIR`, or `lm_eval/packs` in the user's data folder."""
    own = os.environ.get("LMEVAL_PACKS_DIR")
    if own:
        return Path(own).expanduser().resolve()
    base = os.environ.get("XDG_DATA_HOME")
    home = Path(base) if base else Path.home() / ".local" / "share"
    return (home / "lm_eval" / "packs").resolve()


def installed() -> list[Pack]:
    """All packs, the oldest first."""
    folder = packs_folder()
    if not folder.is_dir():
        return []
    found = [
        Pack(path)
        for path in sorted(folder.iterdir())
        if not path.name.startswith(".") and (path / RECORD).is_file()
    ]
    return sorted(found, key=_age)


def _age(pack: Pack) -> float:
    try:
        return float(pack.record()["added"])
    except (ConfigError, TypeError, ValueError):  # told when it is used
        return time.time()


def find(name: str) -> Pack:
    for pack in installed():
        if pack.name == name:
            return pack
    names = [pack.name for pack in installed()]
    raise UnknownNameError(
        f"there is no pack {name!r}.{suggestion(name, names)} "
        f"There are: {', '.join(names) or 'none'}. `lm-eval packs add SOURCE` adds one."
    )


# -- adding and removing ----------------------------------------------------------------------


def add(
    source: str, name: str | None = None, expected: str | None = None, replace: bool = False
) -> Pack:
    """Copy the task files of a source, all of them or none."""
    called = name_of(source) if name is None else name
    if not re.fullmatch(r"\w[\w.\-]*", called):
        raise ConfigError(
            f"a pack cannot be called {called!r}: give it a --name of letters, digits, `_`, `-` "
            "and `.`."
        )
    target = packs_folder() / called
    if not replace:
        _refuse_taken(target)
    added = _age(Pack(target))
    with fetched(source) as (root, version):
        hashes = hash_files(root)
        total = total_hash(hashes)
        if expected is not None and expected.removeprefix("sha256:").lower() != total:
            raise ConfigError(
                f"{source}: its task files have the hash sha256:{total}, and sha256:"
                f"{expected.removeprefix('sha256:')} was expected. Nothing was added."
            )
        record = {
            "source": lasting(source),
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
            _put(made.path, target, scratch / "old" if replace else None)
    _forget()
    return Pack(target)


def _refuse_taken(target: Path) -> None:
    if target.exists():
        raise ConfigError(
            f"there is a pack {target.name!r} already; `lm-eval packs update {target.name}`, "
            "remove it, or give this one another --name."
        )


def _put(made: Path, target: Path, old: Path | None) -> None:
    """Move a pack to its place; what was there goes to `old`, and comes back if that fails."""
    if old is not None and target.exists():
        target.rename(old)
    try:
        made.rename(target)
    except OSError:
        if old is not None and old.exists():
            old.rename(target)
        _refuse_taken(target)  # somebody else has added it in the meantime
        raise


@contextmanager
def _scratch() -> Iterator[Path]:
    """A folder beside the packs, in which things are made ready, and gone afterwards."""
    folder = packs_folder()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _sweep(folder)
        with tempfile.TemporaryDirectory(dir=folder, prefix=_SCRATCH) as scratch:
            yield Path(scratch)
    except OSError as error:
        raise OutputError(
            f"{folder}: packs cannot be kept there ({error.strerror or error}); LMEVAL_PACKS_DIR "
            "names another folder."
        ) from error


def _sweep(folder: Path) -> None:
    """Remove what a command that was killed has left."""
    for left in folder.glob(f"{_SCRATCH}*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > _GIVEN_UP:
                shutil.rmtree(left)


def update(name: str) -> tuple[Pack, bool]:
    """Fetch a pack's source again; tells whether anything changed."""
    before = find(name).record()
    pack = add(before["source"], name, replace=True)
    return pack, pack.record()["hash"] != before["hash"]


def remove(name: str) -> None:
    """Take a pack away at once, then delete its files."""
    pack = find(name)
    with _scratch() as scratch:
        pack.path.rename(scratch / "old")
    _forget()


def hash_files(root: Path) -> dict[str, str]:
    """A hash for every file below a folder, by its path there."""
    return {path.relative_to(root).as_posix(): _hash(path) for path in task_files(root)}


def _hash(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def total_hash(hashes: dict[str, str]) -> str:
    text = "".join(f"{name}\n{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


# -- using ------------------------------------------------------------------------------------


def pack_of(path: str | Path | None) -> Pack | None:
    """The pack that a file belongs to, if any."""
    if path is None or not Path(path).is_relative_to(packs_folder()):
        return None
    return Pack(packs_folder() / Path(path).relative_to(packs_folder()).parts[0])


def trust(pack: Pack, files: Iterable[Path]) -> None:
    """Check what a pack's task is made of before any code runs; say so the first time."""
    _check_code(pack)
    for file in files:
        if file.is_relative_to(pack.tasks):
            family, *inside = file.relative_to(pack.tasks).parts
            _check(pack, pack.tasks / family if inside else pack.tasks)
    record = pack.record()
    if not record["used"]:
        logger.warning(
            "the first task from the pack %s (%s): code from it runs now.",
            pack.name,
            record["source"],
        )
        try:
            pack.write(RECORD, {**record, "used": True})
        except OSError:  # said again next time
            logger.debug("%s cannot be written.", pack.path)


@cache
def _hashes(pack: Pack) -> dict[str, str]:
    return pack.hashes()


@cache
def _check_code(pack: Pack) -> None:
    """Compare all code in a pack with what was added: any file may import any other."""
    _compare(pack, task_files(pack.tasks, ".py"))


@cache
def _check(pack: Pack, family: Path) -> None:
    """Compare everything in the folder of a family with what was added."""
    _compare(pack, task_files(family))


def _forget() -> None:
    """What was checked may have changed."""
    for checked in (_hashes, _check_code, _check):
        checked.cache_clear()


def _compare(pack: Pack, files: Iterable[Path]) -> None:
    for file in files:
        if _hashes(pack).get(file.relative_to(pack.tasks).as_posix()) != _hash(file):
            raise ConfigError(
                f"{file}: was changed after the pack {pack.name!r} was added. `lm-eval packs "
                f"update {pack.name}` fetches it anew."
            )
