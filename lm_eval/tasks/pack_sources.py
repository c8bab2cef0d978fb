"""Fetches the task files of a pack from PyPI, a Git repository, an archive or a folder.

Nothing that is fetched is run. Files are unpacked into a temporary folder, which is deleted after
the pack has been copied from it.
"""

from __future__ import annotations

import itertools
import os
import re
import stat
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
#: Where published packages and repositories keep their task folders, the most likely place first.
_PLACES = ("lm_eval/tasks", "src/lm_eval/tasks", "tasks", "")
#: The largest total size of a pack in bytes. Task files are text, so more is a mistake.
LARGEST = 2**30
#: The most files of a pack. The published harness has 15,000.
MOST_FILES = 200_000
_REQUIREMENT = re.compile(r"[A-Za-z0-9][\w.\-]*\s*([=<>~!].*)?")
#: The endings of archives and repositories that are not part of a pack's name.
_ENDINGS = re.compile(r"\.(git|zip|whl|tgz|tbz|txz|tar(\.\w+)?)$")


@contextmanager
def fetch_source(source: str) -> Iterator[tuple[Path, str | None]]:
    """Context manager that fetches `source` and yields its folder of task files and its version.

    The version is that of a package, the commit of a repository, or None. The folder exists only
    inside the `with` block, unless `source` is itself a local folder. Raises `ConfigError` if
    `source` cannot be fetched or contains no task files.
    """
    with tempfile.TemporaryDirectory(prefix="lm_eval_pack_") as scratch:
        folder, local = Path(scratch), Path(source).expanduser()
        if source.startswith("pypi:"):
            wheel = _download(source, folder)
            yield _task_root(_unpack(wheel, folder / "files"), source), wheel.name.split("-")[1]
        elif source.startswith("git+"):
            clone, commit = _clone(source, folder / "files")
            _check_links(clone)
            yield _task_root(clone, source), commit
        elif local.is_dir():
            yield _task_root(local, source), None
        elif local.is_file():
            yield _task_root(_unpack(local, folder / "files"), source), None
        else:
            raise ConfigError(
                f"{source}: not a pack: there is no such file or folder. Give {_KINDS}."
            )


def default_name(source: str) -> str:
    """Returns the default name of the pack from `source`.

    It is `lm-eval` for `pypi:lm-eval==0.4.13`, and `tasks` for `git+https://host/tasks.git@abc`.
    For a folder or an archive, it is its name, without the ending of an archive. Raises
    `ConfigError` if `source` is empty or malformed.
    """
    if not source.strip():
        raise ConfigError(f"the source of the pack is empty. Give {_KINDS}.")
    if source.startswith("pypi:"):
        return re.split(r"[=<>~! ]", _requirement(source))[0]
    if source.startswith("git+"):
        last = _address(source)[0].rstrip("/").rpartition("/")[2]
    else:
        last = Path(source).expanduser().resolve().name
    return _ENDINGS.sub("", last)


def absolute_source(source: str) -> str:
    """Returns `source` with a local path made absolute, so that it is valid in any folder."""
    if source.startswith(("pypi:", "git+")):
        return source
    return str(Path(source).expanduser().resolve())


# -- the package index ------------------------------------------------------------------------


def _requirement(source: str) -> str:
    """Returns `source` without `pypi:`; raises `ConfigError` if the rest is no requirement."""
    requirement = source.removeprefix("pypi:").strip()
    if not _REQUIREMENT.fullmatch(requirement):
        raise ConfigError(f"{source}: not a valid package; write it as pypi:PACKAGE==VERSION.")
    return requirement


def _download(source: str, folder: Path) -> Path:
    """Downloads a package's wheel, without its dependencies, into `folder`; returns its path.

    Source archives are not accepted, because pip runs their build code even to download them.
    Raises `ConfigError` if the download fails.
    """
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    _run(
        [*pip, "--no-deps", "--only-binary=:all:", "--", _requirement(source)],
        folder,
        f"{source}: cannot be downloaded as a wheel",
    )
    found = list(folder.glob("*.whl"))
    if not found:
        raise ConfigError(
            f"{source}: pip downloaded no wheel for this package. Give a repository, a folder or "
            "an archive instead."
        )
    return found[0]


def _run(command: list[str], folder: Path, failure: str) -> str:
    """Runs `command` in `folder` and returns what it prints to standard output.

    Raises `ConfigError` if it fails: `failure`, followed by the last line of its error output.
    """
    quiet = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "PIP_NO_INPUT": "1", "LC_ALL": "C"}
    try:
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, env=quiet
        )
    except OSError as error:
        raise ConfigError(f"{failure}: the program {command[0]} cannot be started.") from error
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines()]
        lines = [line for line in lines if line and not line.startswith(("WARNING", "[notice]"))]
        reason = re.sub(r"^(ERROR|fatal|error):\s*", "", (lines or ["no reason was given"])[-1])
        raise ConfigError(f"{failure}: {reason.rstrip('.')}.")
    return done.stdout.strip()


# -- repositories -----------------------------------------------------------------------------


def _address(source: str) -> tuple[str, str]:
    """Returns the URL and the commit of `git+URL@COMMIT`; the commit is empty if there is none.

    An `@` before the last `/` is part of the URL, as in `git+ssh://git@host/tasks`. Raises
    `ConfigError` if the URL is empty, or if URL or commit begins with `-`.
    """
    address = source.removeprefix("git+")
    url, mark, commit = address.rpartition("@")
    if not mark or "/" not in url or "/" in commit:
        url, commit = address, ""
    if not url or url.startswith("-") or commit.startswith("-"):
        raise ConfigError(f"{source}: not a valid repository; write it as git+URL@COMMIT.")
    return url, commit


def _clone(source: str, target: Path) -> tuple[Path, str]:
    """Clones a repository into `target`; returns `target` and the hash of the commit.

    Without a commit in `source`, the newest one of the default branch is taken. Raises
    `ConfigError` if `git` fails.
    """
    url, commit = _address(source)
    clone = ["git", "clone", "--quiet", "--no-checkout", "--", url, str(target)]
    _run(clone, target.parent, f"{source}: cannot be cloned")
    checkout = ["git", "checkout", "--quiet", commit or "HEAD"]
    _run(checkout, target, f"{source}: cannot be checked out")
    return target, _run(["git", "rev-parse", "HEAD"], target, source)


def _check_links(clone: Path) -> None:
    """Raises `ConfigError` if a symbolic link in a repository points outside of it.

    The link's target would otherwise be copied from this machine into the pack.
    """
    for path in task_files(clone):
        if path.is_symlink() and not path.resolve().is_relative_to(clone.resolve()):
            raise ConfigError(
                f"{path.relative_to(clone)} is a symbolic link that leads out of the repository, "
                "which is not allowed. Nothing was added."
            )


# -- archives ---------------------------------------------------------------------------------


def _unpack(archive: Path, target: Path) -> Path:
    """Unpacks a zip or tar archive into `target` and returns `target`.

    Raises `ConfigError` if it is neither, too large, damaged, or has a member that is a link or a
    device, or whose path is absolute or contains `..`.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                members = zipped.infolist()
                _check_size(archive, (member.file_size for member in members))
                for member in members:
                    _check_member(archive, member.filename, _is_plain_zip(member))
                zipped.extractall(target)
        elif tarfile.is_tarfile(archive):
            with tarfile.open(archive) as tarred:
                _check_size(archive, (member.size for member in tarred))
                for entry in tarred:
                    _check_member(archive, entry.name, entry.isfile() or entry.isdir())
                tarred.extractall(target, filter="data")
        else:
            raise ConfigError(
                f"{archive}: not a pack: it is neither a folder nor a zip or tar archive."
            )
    except ConfigError:
        raise
    except Exception as error:  # damaged archives raise many types of exceptions
        raise ConfigError(
            f"{archive}: cannot be unpacked: {error}. Create or download the archive again."
        ) from error
    return target


def _check_member(archive: Path, name: str, plain: bool) -> None:
    """Raises `ConfigError` if a member of an archive is no plain file or folder below its root.

    `plain` tells whether it is a file or folder, not a link or a device.
    """
    parts = re.split(r"[/\\]", name)
    outside = ".." in parts or name.startswith(("/", "\\")) or re.match(r"[A-Za-z]:", name)
    if plain and not outside and "\0" not in name:
        return
    problem = "leads out of the archive" if plain else "is a link or a device"
    raise ConfigError(
        f"{archive}: {name!r} {problem}, which is not allowed in a pack. Nothing was added; remove "
        "it from the archive."
    )


def _is_plain_zip(member: zipfile.ZipInfo) -> bool:
    """Returns whether a member of a zip archive is a file or folder, judging by its Unix mode."""
    kind = stat.S_IFMT(member.external_attr >> 16)
    return kind in (0, stat.S_IFREG, stat.S_IFDIR)


def _check_size(source: object, sizes: Iterable[int]) -> None:
    """Raises `ConfigError` as soon as the sum of `sizes`, in bytes, exceeds `LARGEST`.

    Also if there are more than `MOST_FILES`.
    The sizes may be an iterator over many files, such as those of a whole disk. `source` is the
    file or folder that the message names.
    """
    for number, total in enumerate(itertools.accumulate(sizes), start=1):
        if number > MOST_FILES:
            raise ConfigError(
                f"{source}: contains more than {MOST_FILES} files; give a folder that contains "
                "only the task files."
            )
        if total <= LARGEST:
            continue
        raise ConfigError(
            f"{source}: contains more than {LARGEST / 2**30:.0f} GiB, too much for task files; "
            "give a folder that contains only the task files."
        )


# -- the task files among the rest ------------------------------------------------------------


def _task_root(found: Path, source: str) -> Path:
    """Returns the folder of task files inside the folder `found`.

    It is `lm_eval/tasks`, `src/lm_eval/tasks` or `tasks`, in `found` or directly in one of its
    folders, or else `found` itself. It must contain a `.yaml` file. Raises `ConfigError`, naming
    `source`, if there is none or if it is too large.
    """
    inside = [found, *sorted(path for path in found.iterdir() if path.is_dir())]
    for place in _PLACES:
        for base in inside if place else [found]:
            root = base / place
            if root.is_dir() and any(task_files(root, ".yaml")):
                _check_size(source, (path.stat().st_size for path in task_files(root)))
                return root
    raise ConfigError(f"{source}: not a pack: there are no task files (*.yaml) in it.")


def task_files(root: Path, ending: str | tuple[str, ...] = "") -> Iterator[Path]:
    """Yields every file below `root` whose name ends with `ending`, or with one of several.

    Skips hidden files and folders (`.git`) and `__pycache__`.
    """
    for folder, names, files in os.walk(root):
        names[:] = sorted(n for n in names if not n.startswith(".") and n != "__pycache__")
        for name in sorted(files):
            path = Path(folder) / name
            if name.endswith(ending) and not name.startswith(".") and path.is_file():
                yield path
