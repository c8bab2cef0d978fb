"""What a process does to itself before it runs code of others: the order matters.

A process can lock itself in only while it still has the means: first the scratch folder, which
needs privileges in the namespace, then the user and the capabilities, then the limits, then
Landlock, and the system-call filter at last.
"""

from __future__ import annotations

import fcntl
import os
import resource
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from lm_eval.sandbox import kernel, landlock, namespaces, seccomp
from lm_eval.sandbox.paths import DEVICES, LAST_DESCRIPTOR
from lm_eval.sandbox.types import Limits

_OUT_OF_THE_WAY = 200
#: The first of the descriptors that importing needs; those of the channel are below.
IMPORT_DESCRIPTORS = 40


@dataclass(frozen=True)
class Confinement:
    """How the processes of one supervisor are confined.

    Attributes:
        mechanisms: those of `types.MECHANISMS` that are used.
        limits: the limits of one program.
        readable: the paths that it may read.
        scratch: the folder that it may write to.
        user: the user and group to change to; None to stay.
        other_processes: how many processes the user has already.
        import_descriptors: how many descriptors for imports are kept open.
    """

    mechanisms: Sequence[str]
    limits: Limits
    readable: Sequence[str]
    scratch: str
    user: int | None
    other_processes: int
    import_descriptors: int


def confine(plan: Confinement, keep: Sequence[int], *, scratch: bool) -> list[int]:
    """Locks this process in; returns the new numbers of the descriptors in `keep`.

    Standard input is empty, output is discarded, and all other descriptors are closed.

    Args:
        plan: how to confine it.
        keep: the descriptors that stay open.
        scratch: whether it gets a folder to write to.
    """
    kept = _arrange_descriptors(keep, plan.import_descriptors)
    os.setsid()
    if sys.platform == "linux":
        _confine_linux(plan, scratch)
    else:
        _change_user(plan.user)
        os.chdir(plan.scratch if scratch else "/")
        _set_limits(plan)
    return kept


def _confine_linux(plan: Confinement, scratch: bool) -> None:
    isolated = "namespaces" in plan.mechanisms
    if isolated and scratch:
        namespaces.mount_scratch(plan.limits.scratch_bytes, plan.limits.scratch_files)
    _change_user(namespaces.INNER_ID if isolated and plan.user is not None else plan.user)
    kernel.drop_capabilities()
    kernel.forbid_new_privileges()
    # After the change of user, which would reset it.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    # A program of the same user could otherwise trace the process of its tests.
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    os.chdir(plan.scratch if scratch else "/")
    _set_limits(plan)
    if "landlock" in plan.mechanisms:
        devices = ["/dev"] if isolated else DEVICES  # all that its own root has
        landlock.restrict(plan.readable, [plan.scratch] if scratch else [], devices)
    if "seccomp" in plan.mechanisms:
        seccomp.restrict()


def _change_user(user: int | None) -> None:
    """Gives up root for good: all of real, effective and saved user and group are changed."""
    if user is not None:
        os.setgid(user)
        os.setuid(user)


def _arrange_descriptors(keep: Sequence[int], import_descriptors: int) -> list[int]:
    """Moves `keep` to 3, 4, 5 …, connects 0 to 2 with nothing, and closes the others."""
    nothing = os.open(os.devnull, os.O_RDWR)
    # First out of the way, so that none is overwritten before it has been moved.
    moved = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, _OUT_OF_THE_WAY)
        for descriptor in (nothing, nothing, nothing, *keep)
    ]
    for target, descriptor in enumerate(moved):
        os.dup2(descriptor, target, inheritable=False)
    os.closerange(len(moved), IMPORT_DESCRIPTORS)
    os.closerange(IMPORT_DESCRIPTORS + import_descriptors, LAST_DESCRIPTOR)
    return list(range(3, len(moved)))


def _set_limits(plan: Confinement) -> None:
    limits = plan.limits
    seconds = max(1, round(limits.cpu_seconds))
    values = {
        "RLIMIT_CORE": 0,
        "RLIMIT_CPU": seconds,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_NPROC": plan.other_processes + limits.processes,
        "RLIMIT_AS": limits.memory_bytes,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
    }
    for name, value in values.items():
        kind = getattr(resource, name, None)
        if kind is None:
            continue
        hard = resource.getrlimit(kind)[1]
        allowed = value if hard == resource.RLIM_INFINITY else min(value, hard)
        try:
            resource.setrlimit(kind, (allowed, allowed))
        except (ValueError, OSError):
            # macOS lets nobody limit the address space.
            if sys.platform == "linux":
                raise
