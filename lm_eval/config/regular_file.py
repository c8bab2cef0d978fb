"""Reads files that strangers may have written: only regular files, and only up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lm_eval.errors import ConfigError

#: The largest YAML or Python file that is read, in bytes. The largest published one has 63 kB.
LARGEST = 4 * 2**20


def read_regular(path: str | Path, largest: int = LARGEST) -> bytes:
    """Returns the content of a regular file.

    A pipe, device or socket is refused before anything is read from it: reading could block
    forever, or never end. Raises `ConfigError` if `path` is no regular file, has more than
    `largest` bytes, or cannot be read.
    """
    try:
        _check(path, Path(path).stat(), largest)
        # Without O_NONBLOCK, opening a pipe that was put in its place would block.
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(handle, "rb") as file:
            _check(path, os.fstat(handle), largest)
            return file.read(largest)
    except OSError as error:
        raise ConfigError(
            f"{path}: this file cannot be read ({error.strerror}). Check its path and permissions."
        ) from error
    except ValueError as error:  # a NUL character in the name
        raise ConfigError(
            f"{str(path)!r}: not the name of a file ({error}). Correct the name."
        ) from error


def _check(path: str | Path, status: os.stat_result, largest: int) -> None:
    """Raises `ConfigError` if a file with this status is not regular, or too large."""
    if not stat.S_ISREG(status.st_mode):
        raise ConfigError(
            f"{path}: not a regular file but {_kind(status.st_mode)}. Remove it, or put a file in "
            "its place."
        )
    if status.st_size > largest:
        raise ConfigError(
            f"{path}: the file has {status.st_size} bytes, more than the {largest} that a file of "
            "a task folder may have. Move documents into a data file (dataset_path: json)."
        )


def is_regular(path: str | Path) -> bool:
    """Returns whether `path` is a regular file or a link to one; false for any invalid name."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):  # missing, a name that is too long, or a NUL character in it
        return False


def _kind(mode: int) -> str:
    for is_kind, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if is_kind(mode):
            return name
    return "a device"
