"""Reads files that strangers may have written: only regular files, and only up to a size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from lm_eval.errors import ConfigError

#: The largest YAML or Python file that is read, in bytes. The largest published one has 63 kB.
LARGEST = 4 * 2**20
#: Without O_NONBLOCK, opening a pipe would block. O_BINARY exists on Windows only.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)


def read_regular(path: str | Path, largest: int = LARGEST) -> bytes:
    """Returns the content of a regular file.

    A pipe, device or socket is refused before anything is read from it: reading could block
    forever, or never end. Raises `ConfigError` if `path` is no regular file, has more than
    `largest` bytes, or cannot be read.
    """
    try:
        handle = os.open(path, _FLAGS)
        try:
            status = os.fstat(handle)
            if not stat.S_ISREG(status.st_mode) or status.st_size > largest:
                raise _refusal(path, status, largest)
            content = os.read(handle, status.st_size + 1)
            while more := os.read(handle, 2**20) if content else b"":  # the file has grown
                content += more
                if len(content) > largest:
                    raise _refusal(path, os.fstat(handle), largest)
            return content
        finally:
            os.close(handle)
    except OSError as error:
        if _is_special(path):  # a socket cannot be opened
            raise _refusal(path, Path(path).stat(), largest) from error
        raise ConfigError(
            f"{path}: this file cannot be read ({error.strerror}). Check its path and permissions."
        ) from error
    except ValueError as error:  # a NUL character in the name
        raise ConfigError(
            f"{str(path)!r}: not the name of a file ({error}). Correct the name."
        ) from error


def _refusal(path: str | Path, status: os.stat_result, largest: int) -> ConfigError:
    """Returns the error about a file that is not regular, or too large."""
    if not stat.S_ISREG(status.st_mode):
        return ConfigError(
            f"{path}: not a regular file but {_kind(status.st_mode)}. Remove it, or put a file in "
            "its place."
        )
    return ConfigError(
        f"{path}: the file has {status.st_size} bytes, more than the {largest} that a file of a "
        "task folder may have. Move documents into a data file (dataset_path: json)."
    )


def _is_special(path: str | Path) -> bool:
    """Returns whether something else than a regular file is at `path`; false if nothing is."""
    try:
        return not stat.S_ISREG(Path(path).stat().st_mode)
    except OSError:
        return False


def is_regular(path: str | Path) -> bool:
    """Returns whether `path` is a regular file or a link to one; false for any invalid name."""
    try:
        return stat.S_ISREG(Path(path).stat().st_mode)
    except (OSError, ValueError):  # missing, a name that is too long, or a NUL character in it
        return False


def is_folder(path: str | Path) -> bool:
    """Returns whether `path` is a folder or a link to one; false for any invalid name."""
    try:
        return stat.S_ISDIR(Path(path).stat().st_mode)
    except (OSError, ValueError):
        return False


def user_path(text: str) -> Path:
    """Returns the path with `~` replaced by the home folder; unchanged for an unknown user."""
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def _kind(mode: int) -> str:
    for is_kind, name in (
        (stat.S_ISDIR, "a folder"),
        (stat.S_ISFIFO, "a named pipe"),
        (stat.S_ISSOCK, "a socket"),
    ):
        if is_kind(mode):
            return name
    return "a device"
