"""Calls of the Linux kernel that Python has no functions for."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import Any

NEW_NAMESPACE = {
    "mount": 0x00020000,
    "uts": 0x04000000,
    "ipc": 0x08000000,
    "user": 0x10000000,
    "pid": 0x20000000,
    "net": 0x40000000,
}

PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP = 1, 4, 22
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 36, 38

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND = 1, 2, 4, 8, 4096
MS_REC, MS_PRIVATE = 16384, 1 << 18
_DETACH = 2
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_CAPABILITY_VERSION = 0x20080522

# Calls that have no function in the C library; these numbers are the same on all machines.
MOUNT_SETATTR, LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 442, 444, 445, 446


@functools.cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, name: str) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")
    return result


def syscall(number: int, *args: Any, name: str = "") -> int:
    """Makes a system call by its number; raises `OSError` with `name` if it fails."""
    values = [ctypes.c_long(arg) if isinstance(arg, int) else arg for arg in args]
    return _checked(_libc().syscall(ctypes.c_long(number), *values), name or f"syscall {number}")


def prctl(option: int, *args: Any) -> int:
    """Sets an attribute of this process."""
    values = [ctypes.c_ulong(arg) if isinstance(arg, int) else arg for arg in args]
    values += [ctypes.c_ulong(0)] * (4 - len(values))
    return _checked(_libc().prctl(option, *values), f"prctl {option}")


def unshare(*kinds: str) -> None:
    """Moves this process into new namespaces; for `pid`, its next child."""
    flags = sum(NEW_NAMESPACE[kind] for kind in kinds)
    _checked(_libc().unshare(flags), f"unshare {'+'.join(kinds)}")


def set_namespace(descriptor: int, kind: str) -> None:
    """Moves this process into the namespace that `descriptor` refers to."""
    _checked(_libc().setns(descriptor, NEW_NAMESPACE[kind]), f"setns {kind}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mounts a file system."""
    texts = [os.fsencode(text) if text else None for text in (source, target, kind)]
    options_or_none = options.encode() or None
    _checked(
        _libc().mount(*texts, ctypes.c_ulong(flags), options_or_none), f"mount {kind} on {target}"
    )


def seal_mount(target: str, *, devices: bool = False, recursive: bool = True) -> None:
    """Makes a mount read-only, with all mounts below it, and ignores its set-user-id bits."""
    attributes = MS_RDONLY | MS_NOSUID | (0 if devices else MS_NODEV)
    data = (ctypes.c_uint64 * 4)(attributes, 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    syscall(
        MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, ctypes.byref(data),
        ctypes.sizeof(data), name=f"mount_setattr {target}",
    )  # fmt: skip


def change_root(folder: str) -> None:
    """Makes `folder`, a mount, the root of this mount namespace, and unmounts everything else."""
    os.chdir(folder)
    _checked(_libc().pivot_root(b".", b"."), "pivot_root")
    _checked(_libc().umount2(b".", _DETACH), "umount2")
    os.chdir("/")


def drop_capabilities() -> None:
    """Gives up all privileges of this process, in its user namespace and outside."""
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _checked(_libc().capset(ctypes.byref(header), ctypes.byref(nothing)), "capset")


def forbid_new_privileges() -> None:
    """Makes set-user-id programs and file capabilities ineffective from here on."""
    prctl(PR_SET_NO_NEW_PRIVS, 1)
