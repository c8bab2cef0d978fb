"""Where packs come from: fetch a package, a repository, an archive or a folder, and run none of it.

What is fetched is unpacked into a folder of its own, which is gone when the pack is copied.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lm_eval.errors import ConfigError

_KINDS = "pypi:PACKAGE==VERSION, git+URL@COMMIT, a folder or an archive"
#: Where task folders lie in what people publish, the likeliest first.
_PLACES = ("lm_eval/tasks", "src/lm_eval/tasks", "tasks", "")
#: Task files are text; what is larger than all of this is something else.
LARGEST = 2**30
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.\-]*\s*([=<>~!].*)?")
#: Archives, by how their names end.
_ENDINGS = re.compile(r"\.(git|zip|whl|tgz|tbz|txz|tar(\.\w+)?)$")


@contextmanager
def fetched(source: str) -> Iterator[tuple[Path, str | None]]:
    """The folder of task files in a source, and its version where it has one."""
    with tempfile.TemporaryDirectory(prefix="lm_eval_pack_") as scratch:
        folder, local = Path(scratch), Path(source).expanduser()
        if source.startswith("pypi:"):
            wheel = _download(source, folder)
            yield _task_root(_unpacked(wheel, folder / "files"), source), wheel.name.split("-")[1]
        elif source.startswith("git+"):
            clone, commit = _cloned(source, folder / "files")
            _refuse_ways_out(clone)
            yield _task_root(clone, source), commit
        elif local.is_dir():
            yield _task_root(local, source), None
        elif local.is_file():
            yield _task_root(_unpacked(local, folder / "files"), source), None
        else:
            raise ConfigError(
                f"{source}: is no pack: there is no such file or folder. Give {_KINDS}."
            )


def name_of(source: str) -> str:
    """`pypi:lm-eval==0.4.13` is lm-eval, `git+https://host/tasks.git@abc` is tasks."""
    if not source.strip():
        raise ConfigError(f"name a source: {_KINDS}.")
    if source.startswith("pypi:"):
        return re.split(r"[=<>~! ]", _requirement(source))[0]
    if source.startswith("git+"):
        last = _address(source)[0].rstrip("/").rpartition("/")[2]
    else:
        last = Path(source).expanduser().resolve().name
    return _ENDINGS.sub("", last)


def lasting(source: str) -> str:
    """A source as it is found again later, from wherever the command is given."""
    if source.startswith(("pypi:", "git+")):
        return source
    return str(Path(source).expanduser().resolve())


# -- the package index ------------------------------------------------------------------------


def _requirement(source: str) -> str:
    requirement = source.removeprefix("pypi:").strip()
    if not _REQUIREMENT.fullmatch(requirement):
        raise ConfigError(f"{source}: name a package, as pypi:PACKAGE==VERSION.")
    return requirement


def _download(source: str, folder: Path) -> Path:
    """A package's wheel, without what it depends on.

    Only a wheel will do: to look into a source archive, pip runs the code that builds it.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    _run(
        [*pip, "--no-deps", "--only-binary=:all:", "--", _requirement(source)],
        folder,
        f"{source}: cannot be downloaded as a wheel",
    )
    found = list(folder.glob("*.whl"))
    if not found:
        raise ConfigError(f"{source}: nothing was downloaded.")
    return found[0]


def _run(command: list[str], folder: Path, failing: str) -> str:
    """What a program prints; where it fails, its last word as the reason."""
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "PIP_NO_INPUT": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env=quiet
        )
    except OSError as error:
        raise ConfigError(f"{failing}: {command[0]} cannot be started.") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines()]
        lines = [line for line in lines if line and not line.startswith(("WARNING", "[notice]"))]
        reason = re.sub(r"^(ERROR|fatal|error):\s*", "", (lines or ["it says nothing more"])[-1])
        raise ConfigError(f"{failing}: {reason.rstrip('.')}.")
    return done.stdout.strip()


# -- repositories -----------------------------------------------------------------------------


def _address(source: str) -> tuple[str, str]:
    """URL and commit; what follows an `@` is a commit only at the end of the path."""
    address = source.removeprefix("git+")
    url, mark, commit = address.rpartition("@")
    if not mark or "/" not in url or "/" in commit:
        url, commit = address, ""
    if not url or url.startswith("-") or commit.startswith("-"):
        raise ConfigError(f"{source}: name a repository, as git+URL@COMMIT.")
    return url, commit


def _cloned(source: str, target: Path) -> tuple[Path, str]:
    url, commit = _address(source)
    clone = ["git", "clone", "--quiet", "--no-checkout", "--", url, str(target)]
    _run(clone, target.parent, f"{source}: cannot be cloned")
    checkout = ["git", "checkout", "--quiet", commit or "HEAD"]
    _run(checkout, target, f"{source}: cannot be checked out")
    return target, _run(["git", "rev-parse", "HEAD"], target, source)


def _refuse_ways_out(clone: Path) -> None:
    """A repository may hold links; none may lead to other files of this machine."""
    for path in task_files(clone):
        if path.is_symlink() and not path.resolve().is_relative_to(clone.resolve()):
            raise ConfigError(
                f"{path.relative_to(clone)} is a link that leads out of the repository. Nothing "
                "was added."
            )


# -- archives ---------------------------------------------------------------------------------


def _unpacked(archive: Path, target: Path) -> Path:
    """An archive's files; none may lie outside the folder it is unpacked into."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                _refuse_large(archive, (member.file_size for member in zipped.infolist()))
                zipped.extractall(target)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tarred:
                _refuse_large(archive, (member.size for member in tarred))
                tarred.extractall(target, filter="data")
        else:
            raise ConfigError(f"{archive}: is no pack: neither a folder nor a zip or tar archive.")
    except ConfigError:
        raise
    except Exception as error:  # of a damaged archive the modules say it in many ways
        raise ConfigError(f"{archive}: cannot be unpacked: {error}.") from error
    return target


def _refuse_large(source: object, sizes: Iterable[int]) -> None:
    """Counts no further than it must: somebody may have named a whole disk."""
    if any(total > LARGEST for total in itertools.accumulate(sizes)):
        raise ConfigError(
            f"{source}: holds more than {LARGEST / 2**30:.0f} GiB, too much for task files: give "
            "the folder that they are in alone."
        )


# -- the task files among the rest ------------------------------------------------------------


def _task_root(found: Path, source: str) -> Path:
    """The folder of task files in what was fetched."""
    inside = [found, *sorted(path for path in found.iterdir() if path.is_dir())]
    for place in _PLACES:
        for base in inside if place else [found]:
            root = base / place
            if root.is_dir() and any(task_files(root, ".yaml")):
                _refuse_large(source, (path.stat().st_size for path in task_files(root)))
                return root
    raise ConfigError(f"{source}: is no pack: there are no task files (*.yaml) in it.")


def task_files(root: Path, ending: str = "") -> Iterator[Path]:
    """Every file below a folder, less what programs leave there (`.git`, `__pycache__`)."""
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith(".") and n != "__pycache__")
        for name in sorted(files):
            path = Path(folder) / name
            if name.endswith(ending) and not name.startswith(".") and path.is_file():
                yield path
