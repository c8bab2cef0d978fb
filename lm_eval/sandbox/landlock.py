"""Landlock: the files that a program may reach, without any privilege or namespace."""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

from lm_eval.sandbox import kernel

_VERSION_FLAG, _PATH_BENEATH = 1, 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_SOCK, _MAKE_BLOCK = 1 << 6, 1 << 9, 1 << 11
_IOCTL_DEV = 1 << 15

#: How many file rights each version of Landlock knows, from the lowest bit.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
_FILE_RIGHTS_NOW = 16
_TCP_BIND_AND_CONNECT = 0b11
_ABSTRACT_SOCKETS_AND_SIGNALS = 0b11
_FILE_ONLY = _WRITE_FILE | _READ_FILE


def version() -> int:
    """Returns the version of Landlock in this kernel; raises `OSError` if there is none."""
    return kernel.syscall(
        kernel.LANDLOCK_CREATE, None, 0, _VERSION_FLAG, name="landlock_create_ruleset"
    )


def restrict(readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]) -> None:
    """Takes from this process all files but these, TCP, and what it could do to other processes.

    Older versions of Landlock cannot restrict TCP (before 4), or abstract sockets and signals
    (before 6). Nothing can be executed.

    Args:
        readable: files and folders that can be read, with all below them.
        writable: folders below which files can be created, changed and removed.
        devices: device files that can be read and written.
    """
    known = version()
    rights = (1 << _FILE_RIGHTS.get(known, _FILE_RIGHTS_NOW)) - 1
    attributes = struct.pack(
        "QQQ",
        rights,
        _TCP_BIND_AND_CONNECT if known >= 4 else 0,
        _ABSTRACT_SOCKETS_AND_SIGNALS if known >= 6 else 0,
    )
    ruleset = kernel.syscall(
        kernel.LANDLOCK_CREATE, attributes, len(attributes), 0, name="landlock_create_ruleset"
    )
    inside = rights & ~(_EXECUTE | _MAKE_CHAR | _MAKE_SOCK | _MAKE_BLOCK | _IOCTL_DEV)
    try:
        for path in readable:
            _allow(ruleset, path, _READ_FILE | _READ_DIR)
        for path in writable:
            _allow(ruleset, path, inside)
        for path in devices:
            _allow(ruleset, path, _FILE_ONLY)
        kernel.forbid_new_privileges()
        kernel.syscall(kernel.LANDLOCK_RESTRICT, ruleset, 0, name="landlock_restrict_self")
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except (FileNotFoundError, PermissionError):
        return  # what cannot be opened now cannot be opened later
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            rights &= _FILE_ONLY
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, descriptor), 12)
        kernel.syscall(
            kernel.LANDLOCK_ADD, ruleset, _PATH_BENEATH, rule, 0, name=f"landlock_add_rule {path}"
        )
    finally:
        os.close(descriptor)
