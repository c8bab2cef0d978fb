"""Namespaces: a root folder, process ids, a network and shared memory of a process's own.

The supervisor enters user, mount, network, ipc and uts namespaces once, and builds a root folder
that holds nothing but the interpreter and its libraries, read-only. For each program it opens a
fresh pid namespace, in which the program is the first process: when it ends, the kernel kills all
that it has started. The program's own mount and ipc namespaces hold its scratch folder, in memory.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Sequence
from contextlib import suppress

from lm_eval.sandbox import kernel
from lm_eval.sandbox.paths import DEVICES, LAST_DESCRIPTOR

#: The user and group that programs see themselves as.
INNER_ID = 1000
SCRATCH = "/scratch"


class Namespaces:
    """The namespaces of a supervisor; creating one moves this process into them.

    The process that returns is a child of the one that calls, which waits for it: a process can
    enter a pid namespace only by being born in it.

    Args:
        staging: an empty folder on which the new root is built.
        readable: what to expose in it.
        outer_id: the user and group, outside, that programs run as; None for the present ones. Only
            root can choose.
    """

    def __init__(self, staging: str, readable: Sequence[str], outer_id: int | None) -> None:
        _enter_user_namespace(outer_id)
        _continue_in_pid_namespace(staging)
        kernel.unshare("mount")
        self._pid_namespace = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
        kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
        _build_root(staging, readable)
        kernel.change_root(staging)
        kernel.seal_mount("/", recursive=False)

    def fork(self) -> int:
        """Forks a process that is the first of a new pid namespace; returns 0 in it."""
        kernel.unshare("pid")
        pid = os.fork()
        if pid:
            kernel.set_namespace(self._pid_namespace, "pid")
        return pid


def mount_scratch(size: int, files: int) -> None:
    """Gives this process an empty scratch folder in memory, and shared memory of its own."""
    kernel.unshare("mount", "ipc")
    options = f"size={size},nr_inodes={files},mode=0777"
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("scratch", SCRATCH, "tmpfs", flags, options)


def _enter_user_namespace(outer_id: int | None) -> None:
    """Enters a user namespace; maps the present user, and for root the programs' user as well."""
    kinds = ("user", "net", "ipc", "uts")
    if outer_id is None:
        user, group = os.geteuid(), os.getegid()
        kernel.unshare(*kinds)
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{INNER_ID} {user} 1")
        _write("/proc/self/gid_map", f"{INNER_ID} {group} 1")
        return
    # Two users can be mapped only from outside the namespace: by a child that stays there.
    entered, enter = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            os.close(enter)
            if os.read(entered, 1):
                for kind in ("uid", "gid"):
                    _write(f"/proc/{os.getppid()}/{kind}_map", f"0 0 1\n{INNER_ID} {outer_id} 1")
            os._exit(0)
        except OSError as error:
            os._exit(error.errno or 1)
    os.close(entered)
    try:
        kernel.unshare(*kinds)
        os.write(enter, b"1")
    finally:
        os.close(enter)
        code = os.waitstatus_to_exitcode(os.waitpid(helper, 0)[1])
    if code:
        raise OSError(code, f"writing the user map: {os.strerror(code)}")


def _continue_in_pid_namespace(staging: str) -> None:
    """Forks into a new pid namespace; only the child returns, as the first process there.

    The parent still sees the folder on which the child builds its root, and removes it at the end.
    """
    kernel.unshare("pid")
    pid = os.fork()
    if pid:
        os.closerange(0, LAST_DESCRIPTOR)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) & 0xFF
        with suppress(OSError):
            os.rmdir(staging)
        os._exit(code)
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)


def _write(path: str, text: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _build_root(staging: str, readable: Iterable[str]) -> None:
    """Mounts a new root on `staging`, with the readable paths and a few devices in their places."""
    kernel.mount("root", staging, "tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, "mode=0755")
    for path in readable:
        _expose(path, staging)
    for path in DEVICES:
        with suppress(FileNotFoundError):
            _expose(path, staging, devices=True)
    os.mkdir(staging + SCRATCH)


def _expose(path: str, staging: str, *, devices: bool = False) -> None:
    target = staging + path
    os.makedirs(os.path.dirname(target), mode=0o755, exist_ok=True)
    if os.path.islink(path):
        os.symlink(os.readlink(path), target)
        return
    if os.path.isdir(path):
        os.mkdir(target)
    else:
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    kernel.mount(path, target, "", kernel.MS_BIND | kernel.MS_REC)
    kernel.seal_mount(target, devices=devices)
