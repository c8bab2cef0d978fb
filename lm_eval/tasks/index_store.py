"""Keep the index between runs, two files a task folder: the names, and what each file holds.

The store only saves time. A missing, truncated, foreign or unwritable one is passed over in
silence, and nothing in it is believed before the times and sizes of all its files were compared.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lm_eval.tasks.scan import Scan

#: A file's time (ns) and size.
State = tuple[int, int]
#: What a file held when it was in that state; None where it was not YAML.
Scans = dict[str, tuple[State, Scan | None]]
#: Name, kind, path, tags, rivals and output type of an entry.
Name = tuple[str, str, str | None, list[str], list[str], str | None]

_FORMAT = "lm_eval task index 3"
_UNREADABLE = (OSError, ValueError, KeyError, TypeError, RuntimeError)


def load_names(
    root: Path, states: Mapping[str, State], state_of: Callable[[str], State]
) -> tuple[list[Name], list[str]] | None:
    """A folder's names and its unreadable files, if every file is as it was and none has come.

    Files included from elsewhere are not among `states`; they are looked at one by one.
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
    """What each file held, so that only changed ones are read again."""
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
    """Write both files, or neither half of one."""
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
    lines = sorted(f"{path} {time} {size}" for path, (time, size) in states.items())
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _read(root: Path, part: str) -> dict[str, Any]:
    stored: dict[str, Any] = json.loads(_file(root, part).read_bytes())
    if stored["format"] != _FORMAT or stored["root"] != str(root):
        raise ValueError("written by something else")
    return stored


def _write(root: Path, part: str, content: dict[str, Any]) -> None:
    """Write beside, then rename: whoever reads meanwhile sees the old file or the new one."""
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


def cache_folder() -> Path:
    """`$LMEVAL_CACHE_DIR`, or `lm_eval` in the user's cache folder."""
    own = os.environ.get("LMEVAL_CACHE_DIR")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "lm_eval"


def _unpack(fields: list[Any]) -> Scan:
    scan = Scan(*fields)
    return scan._replace(
        tags=None if scan.tags is None else tuple(scan.tags), includes=tuple(scan.includes)
    )
