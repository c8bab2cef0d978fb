"""The seccomp filter: the system calls that a program may make.

The filter lists what is allowed; all else fails with `EPERM`. Programs can compute, use files
(which ones is decided by Landlock and the mount namespace), start threads and signal themselves.
They cannot start processes, open sockets, look at other processes, change their limits or namespaces,
or reach the newer parts of the kernel (io_uring, userfaultfd, bpf, perf, keyrings).
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from lm_eval.sandbox import kernel
from lm_eval.sandbox.syscall_numbers import ALLOWED, ARCHITECTURES, numbers

_LOAD, _JUMP_EQUAL, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT, _AND, _RETURN = (
    0x20,
    0x15,
    0x35,
    0x45,
    0x54,
    0x06,
)
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_MODE_FILTER = 2

# Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000

_CLONE_THREAD = 0x00010000
_AF_UNIX, _SOCK_STREAM, _SOCKET_TYPES = 1, 1, 0xF
_PR_SET_NAME, _PR_GET_NAME = 15, 16
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)

Instruction = tuple[int, int, int, int]


def _low(argument: int) -> int:
    return _ARGUMENTS + 8 * argument


def _return(value: int) -> Instruction:
    return (_RETURN, 0, 0, value)


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


_REFUSE = _return(_ERRNO | errno.EPERM)


def _one_of(argument: int, values: tuple[int, ...], mask: int | None = None) -> list[Instruction]:
    """Allows a call if the low half of an argument, after `mask`, is one of `values`."""
    code = [_load(_low(argument))]
    if mask is not None:
        code.append((_AND, 0, 0, mask))
    for value in values:
        code += [(_JUMP_EQUAL, 0, 1, value), _return(_ALLOW)]
    return [*code, _REFUSE]


def _null(argument: int) -> list[Instruction]:
    """Allows a call if a pointer argument is null."""
    return [
        _load(_low(argument)),
        (_JUMP_EQUAL, 0, 3, 0),
        _load(_low(argument) + 4),
        (_JUMP_EQUAL, 0, 1, 0),
        _return(_ALLOW),
        _REFUSE,
    ]


def _conditional(pid: int) -> dict[str, list[Instruction]]:
    """Returns the code that decides about calls whose arguments matter, by name."""
    return {
        # A thread, never a process. glibc falls back to `clone` if there is no `clone3`, whose
        # arguments a filter cannot see.
        "clone": [
            _load(_low(0)),
            (_JUMP_ANY_BIT, 0, 1, _CLONE_THREAD),
            _return(_ALLOW),
            _REFUSE,
        ],
        "clone3": [_return(_ERRNO | errno.ENOSYS)],
        "kill": _one_of(0, (pid,)),
        "tgkill": _one_of(0, (pid,)),
        "prctl": _one_of(0, (_PR_SET_NAME, _PR_GET_NAME)),
        "prlimit64": _null(2),
        "ioctl": _one_of(1, _IOCTLS),
        # asyncio wakes itself through an anonymous pair. A pair of streams cannot be connected to
        # anything else.
        "socketpair": [
            _load(_low(0)),
            (_JUMP_EQUAL, 1, 0, _AF_UNIX),
            _REFUSE,
            *_one_of(1, (_SOCK_STREAM,), mask=_SOCKET_TYPES),
        ],
        "sendto": _null(4),
    }


def assemble(rules: dict[str, list[Instruction]], otherwise: Instruction) -> list[Instruction]:
    """Returns a filter that applies the code of a rule to the call of its name."""
    known = numbers()
    code = [
        _load(_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, ARCHITECTURES[platform.machine()]),
        _return(_KILL),
        _load(_NUMBER),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        _return(_ERRNO | errno.ENOSYS),
    ]
    for name, body in rules.items():
        if name in known:
            code += [(_JUMP_EQUAL, 0, len(body), known[name]), *body]
    return [*code, otherwise]


def program_filter(pid: int) -> list[Instruction]:
    """Returns the filter of a sandboxed process with this process id, as it sees it itself."""
    rules = {name: [_return(_ALLOW)] for name in ALLOWED.split()}
    return assemble({**rules, **_conditional(pid)}, _REFUSE)


def refusing(*names: str) -> list[Instruction]:
    """Returns a filter that refuses these calls and allows all others."""
    return assemble({name: [_REFUSE] for name in names}, _return(_ALLOW))


def install(code: list[Instruction]) -> None:
    """Applies a filter to this process and all that it starts; it cannot be taken off."""
    kernel.forbid_new_privileges()
    packed = b"".join(struct.pack("HBBI", *instruction) for instruction in code)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(code), ctypes.addressof(buffer))
    )
    kernel.prctl(kernel.PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(header))


def restrict() -> None:
    """Applies the filter of sandboxed processes to this one."""
    install(program_filter(os.getpid()))
