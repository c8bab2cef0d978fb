"""Packs: task folders that others have published, kept beside ours and found by name after them.

A pack is a folder of task files with a record of where it came from and a hash of every file.
Adding one copies files and runs none of them; a file that has changed since is refused.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lm_eval.errors import ConfigError, UnknownNameError, suggestion

logger = logging.getLogger(__name__)

#: What parts a pack from a task's name.
PACK_MARK = ":"
RECORD, TASKS = "pack.json", "tasks"
#: Where task folders lie in what people publish, the likeliest first.
_PLACES = ("lm_eval/tasks", "src/lm_eval/tasks", "tasks", "")
_SKIPPED = {"__pycache__", ".git", ".ipynb_checkpoints"}


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
        try:
            content = json.loads((self.path / RECORD).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"{self.path}: is no pack any more ({error}); remove it.") from error
        return dict(content)

    def write(self, record: dict[str, Any]) -> None:
        (self.path / RECORD).write_text(json.dumps(record, indent=1), encoding="utf-8")


def packs_folder() -> Path:
    """`$LMEVAL_PACKS_DIR`, or `lm_eval/packs` in the user's data folder."""
    own = os.environ.get("LMEVAL_PACKS_DIR")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "lm_eval" / "packs"


def installed() -> list[Pack]:
    folder = packs_folder()
    if not folder.is_dir():
        return []
    return [Pack(path) for path in sorted(folder.iterdir()) if (path / RECORD).is_file()]


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
    with _fetched(source) as (found, version):
        root = _task_root(found, source)
        called = name or _name_of(source)
        if not re.fullmatch(r"[\w.\-]+", called):
            raise ConfigError(f"a pack cannot be called {called!r}; give it a --name of letters.")
        target = packs_folder() / called
        if target.exists() and not replace:
            raise ConfigError(
                f"there is a pack {called!r} already; `lm-eval packs update {called}`, remove it, "
                "or give this one another --name."
            )
        hashes = hash_files(root)
        total = total_hash(hashes)
        if expected is not None and expected.removeprefix("sha256:") != total:
            raise ConfigError(
                f"{source}: its task files have the hash sha256:{total}, and sha256:"
                f"{expected.removeprefix('sha256:')} was expected. Nothing was added."
            )
        record = {
            "source": source,
            "version": version,
            "hash": total,
            "added": time.time(),
            "used": False,
            "files": hashes,
        }
        packs_folder().mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=packs_folder(), prefix=".adding-") as scratch:
            made = Pack(Path(scratch) / called)
            for file in hashes:
                copy = made.tasks / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(root / file, copy)
            made.write(record)
            if target.exists():
                shutil.rmtree(target)
            made.path.rename(target)
    return Pack(target)


def update(name: str) -> tuple[Pack, bool]:
    """Fetch a pack's source again; tells whether anything changed."""
    before = find(name).record()
    pack = add(before["source"], name, replace=True)
    return pack, pack.record()["hash"] != before["hash"]


def remove(name: str) -> None:
    shutil.rmtree(find(name).path)


def hash_files(root: Path) -> dict[str, str]:
    """A hash for every file below a folder, by its path there."""
    files = sorted(
        path
        for path in root.rglob("*")
        if path.is_file() and not _SKIPPED & set(path.relative_to(root).parts)
    )
    return {
        path.relative_to(root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


def total_hash(hashes: dict[str, str]) -> str:
    text = "".join(f"{name}\n{digest}\n" for name, digest in sorted(hashes.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


# -- sources ----------------------------------------------------------------------------------


@contextmanager
def _fetched(source: str) -> Iterator[tuple[Path, str | None]]:
    """The source's files in a folder, and its version where it has one."""
    with tempfile.TemporaryDirectory(prefix="lm_eval_pack_") as scratch:
        folder = Path(scratch)
        if source.startswith("pypi:"):
            wheel = _download(source.removeprefix("pypi:"), folder)
            yield _unpacked(wheel, folder / "files"), wheel.name.split("-")[1]
        elif source.startswith("git+"):
            yield _cloned(source.removeprefix("git+"), folder / "files")
        elif Path(source).expanduser().is_dir():
            yield Path(source).expanduser(), None
        elif Path(source).expanduser().is_file():
            yield _unpacked(Path(source).expanduser(), folder / "files"), None
        else:
            raise ConfigError(
                f"{source}: is no pack: give pypi:PACKAGE==VERSION, git+URL@COMMIT, a folder or an "
                "archive."
            )


def _download(requirement: str, folder: Path) -> Path:
    """A wheel or source archive from the package index, without what it depends on."""
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"], folder, requirement)
    found = [path for path in folder.iterdir() if path.is_file()]
    if not found:
        raise ConfigError(f"pypi:{requirement}: nothing was downloaded.")
    return found[0]


def _run(command: list[str], folder: Path, *rest: str) -> str:
    try:
        done = subprocess.run(
            [*command, *rest], cwd=folder, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be started: {error.strerror}.") from error
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if "WARNING" not in line]
        reason = (lines or ["it says nothing more"])[-1]
        raise ConfigError(f"{' '.join([Path(command[0]).name, *rest])} failed: {reason}")
    return done.stdout.strip()


def _cloned(address: str, target: Path) -> tuple[Path, str]:
    url, mark, commit = address.rpartition("@")
    if not mark or "/" in commit:
        url, commit = address, ""
    _run(["git", "clone", "--quiet"], target.parent, url, str(target))
    if commit:
        _run(["git", "checkout", "--quiet"], target, commit)
    return target, _run(["git", "rev-parse", "HEAD"], target)


def _unpacked(archive: Path, target: Path) -> Path:
    """An archive's files; none may lie outside the folder it is unpacked into."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                zipped.extractall(target)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tarred:
                tarred.extractall(target, filter="data")
        else:
            raise ConfigError(f"{archive}: is no pack: neither a folder nor a zip or tar archive.")
    except (OSError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise ConfigError(f"{archive}: cannot be unpacked: {error}.") from error
    return target


def _task_root(found: Path, source: str) -> Path:
    """The folder of task files in what was fetched."""
    inside = [found, *(p for p in found.iterdir() if p.is_dir())] if found.is_dir() else []
    for place in _PLACES:
        for base in inside if place else [found]:
            root = base / place
            if root.is_dir() and any(root.rglob("*.yaml")):
                return root
    raise ConfigError(f"{source}: is no pack: there are no task files (*.yaml) in it.")


def _name_of(source: str) -> str:
    """`pypi:lm-eval==0.4.13` is lm-eval, `git+https://host/tasks.git@abc` is tasks."""
    plain = source.removeprefix("pypi:").removeprefix("git+")
    plain = re.split(r"[=<>~!\[ ]", plain)[0] if source.startswith("pypi:") else plain
    if source.startswith("git+"):
        plain = re.sub(r"@[^/@]*$", "", plain)
    last = plain.rstrip("/").rpartition("/")[2]
    return re.sub(r"\.(git|zip|whl|tar|tgz|tar\.\w+)$", "", last)


# -- using ------------------------------------------------------------------------------------


def pack_of(path: str | Path | None) -> Pack | None:
    """The pack that a file belongs to, if any."""
    if path is None or not Path(path).is_relative_to(packs_folder()):
        return None
    return Pack(packs_folder() / Path(path).relative_to(packs_folder()).parts[0])


@cache
def trust(path: Path) -> None:
    """Check a pack's file and the code beside it before any of it runs; say so the first time."""
    pack = pack_of(path)
    if pack is None:
        return
    record = pack.record()
    for file in (path, *sorted(path.parent.glob("*.py"))):
        name = file.relative_to(pack.tasks).as_posix()
        if record["files"].get(name) != hashlib.sha256(file.read_bytes()).hexdigest():
            raise ConfigError(
                f"{file}: was changed after the pack {pack.name!r} was added. `lm-eval packs "
                f"update {pack.name}` fetches it anew."
            )
    if not record["used"]:
        logger.warning(
            "the first task from the pack %s (%s): code from it runs now.",
            pack.name,
            record["source"],
        )
        try:
            pack.write({**record, "used": True})
        except OSError:  # said again next time
            logger.debug("%s cannot be written.", pack.path)
