"""The files that sandboxed processes may read: the interpreter, its libraries, and nothing else."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

_LIBRARIES = ("/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib")
_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/usr/share/zoneinfo")
LAST_DESCRIPTOR = 65536
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


def readable_paths() -> list[str]:
    """Returns what an interpreter needs to run and import: the outermost folders, and files.

    The folders of `sys.path` are exposed as they are, the installation itself only by its library
    folder, so that a virtual environment in a home folder exposes nothing next to it.
    """
    found = {path for path in (*_LIBRARIES, *_FILES) if os.path.exists(path)}
    for prefix in {sys.prefix, sys.base_prefix, sys.exec_prefix, sys.base_exec_prefix}:
        found |= {path for name in ("lib", "lib64") if os.path.isdir(path := f"{prefix}/{name}")}
    found |= {path for path in sys.path if os.path.exists(path)}
    found |= _loaded_libraries()
    return outermost({os.path.realpath(path) for path in found} | found)


def _loaded_libraries() -> set[str]:
    """Returns the shared libraries of this process, which may lie outside the usual folders."""
    try:
        with open("/proc/self/maps") as maps:
            paths = {line.split(maxsplit=5)[-1].strip() for line in maps}
    except OSError:
        return set()
    return {path for path in paths if path.startswith("/") and ".so" in path}


def outermost(paths: Iterable[str]) -> list[str]:
    """Returns the paths that are not below another one, sorted."""
    kept: list[str] = []
    for path in sorted(paths):
        if not kept or not path.startswith(kept[-1].rstrip("/") + "/") or os.path.islink(kept[-1]):
            kept.append(path)
    return kept
