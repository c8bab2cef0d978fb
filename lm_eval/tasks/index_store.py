"""On-disk cache of the task index.

For each task folder there are two JSON files: one with the index itself, one with the indexed keys
of every task file. The cache only saves time: if it is missing, damaged, written by another version
or not writable, it is silently ignored. It is valid only for files whose modification time and
size are unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lm_eval.folders import cache_folder
from lm_eval.tasks.scan import Scan

#: A file's modification time (ns) and size.
State = tuple[int, int]
#: By path: a file's state when it was read, and its indexed keys; None if it was not valid YAML.
Scans = dict[str, tuple[State, Scan | None]]
#: An entry of the index as stored: its name, kind, path, tags, duplicates and output type.
Name = tuple[str, str, str | None, list[str], list[str], str | None]

_FORMAT = "lm_eval task index 3"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError)


def load_names(
    root: Path, states: Mapping[str, State], state_of: Callable[[str], State]
) -> tuple[list[Name], list[str]] | None:
    """Returns a folder's index entries and its files that are not valid YAML, from the cache.

    None if the cache is missing, damaged or outdated. `states` are the current states of the
    `.yaml` files below `root`. `state_of` returns the state of one file; it is called for included
    files that are not among `states`.
    """
    try:
        stored = _read(root, "names")
        current = {**states, **{path: state_of(path) for path in stored["elsewhere"]}}
        if stored["fingerprint"] != _fingerprint(current):
            return None
        return stored["names"], stored["unreadable"]
    except _UNREADABLE:
        return None


def load_scans(root: Path) -> Scans:
    """Returns the cached keys of each file below `root`, so that only changed files are read.

    Empty if there is no usable cache.
    """
    try:
        return {
            path: ((time, size), None if scan is None else _unpack(scan))
            for path, time, size, scan in _read(root, "files")["files"]
        }
    except _UNREADABLE:
        return {}


def save(
    root: Path,
    states: Mapping[str, State],
    found: Mapping[str, Scan | None],
    names: list[Name],
    unreadable: list[str],
) -> None:
    """Writes the index of the task folder `root` to two files in the cache folder.

    Each is replaced atomically; errors are ignored.

    Args:
        root: the task folder.
        states: modification time (ns) and size of every file that was read, by path.
        found: the indexed keys of the task files, by path; None for one that is not valid YAML.
        names: the entries of the index.
        unreadable: the paths of the files that are not valid YAML.
    """
    inside = f"{root}{os.sep}"
    elsewhere = [p for p in states if not (p.startswith(inside) and p.endswith(".yaml"))]
    files = [[path, *states[path], scan] for path, scan in found.items()]
    fingerprint = _fingerprint(states)
    _write(root, "files", {"files": files})
    summary = {
        "fingerprint": fingerprint,
        "elsewhere": elsewhere,
        "unreadable": unreadable,
        "names": names,
    }
    _write(root, "names", summary)


def _fingerprint(states: Mapping[str, State]) -> str:
    """Returns a hash of the paths, modification times and sizes of all files."""
    lines = sorted(f"{path} {time} {size}" for path, (time, size) in states.items())
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _read(root: Path, part: str) -> dict[str, Any]:
    """Returns the content of one cache file of the folder `root`; `part` is "names" or "files".

    Raises `OSError` if it cannot be read, and `ValueError` or `KeyError` if it is damaged, has
    another format or belongs to another folder.
    """
    stored: dict[str, Any] = json.loads(_file(root, part).read_bytes())
    if stored["format"] != _FORMAT or stored["root"] != str(root):
        raise ValueError("the cache file has another format or belongs to another folder")
    return stored


def _write(root: Path, part: str, content: dict[str, Any]) -> None:
    """Replaces one cache file of the folder `root` atomically; `part` is "names" or "files".

    Readers see the old or the new file. Errors are ignored.
    """
    target, temporary = _file(root, part), ""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".index-")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(json.dumps({"format": _FORMAT, "root": str(root), **content}))
        os.replace(temporary, target)
    except (OSError, ValueError, RuntimeError):
        if temporary:
            Path(temporary).unlink(missing_ok=True)


def _file(root: Path, part: str) -> Path:
    digest = hashlib.sha256(str(root).encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return cache_folder() / f"index-{digest}-{part}.json"


def _unpack(fields: list[Any]) -> Scan:
    """Returns a `Scan` from its JSON form, in which tuples have become lists."""
    scan = Scan(*fields)
    return scan._replace(
        tags=None if scan.tags is None else tuple(scan.tags), includes=tuple(scan.includes)
    )
