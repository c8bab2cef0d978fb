"""The seccomp filter: the system calls that a program may make.

The filter lists what is allowed; all else fails with `EPERM`. Programs can compute, use files
(which ones is decided by Landlock and the mount namespace), start threads and signal themselves.
They cannot start processes, open sockets, look at other processes, change their limits or
namespaces, or reach the newer parts of the kernel (io_uring, userfaultfd, bpf, perf, keyrings).
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct

from lm_eval.sandbox import kernel
from lm_eval.sandbox.syscall_numbers import ALLOWED, ARCHITECTURES, numbers

# Operations of the kernel's packet-filter language.
_LOAD, _AND, _RETURN, _JUMP = 0x20, 0x54, 0x06, 0x05
_JUMP_EQUAL, _JUMP_GREATER, _JUMP_GREATER_EQUAL, _JUMP_ANY_BIT = 0x15, 0x25, 0x35, 0x45
_INSTRUCTION_BYTES = 8
_KILL, _ALLOW, _ERRNO = 0x80000000, 0x7FFF0000, 0x00050000
_MODE_FILTER = 2

# Offsets in `struct seccomp_data`.
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000

_CLONE_THREAD = 0x00010000
_AF_UNIX, _SOCK_STREAM, _SOCKET_TYPES = 1, 1, 0xF
_PR_SET_NAME, _PR_GET_NAME = 15, 16
# F_SETOWN, F_SETSIG, F_SETOWN_EX.
_FCNTL_SIGNALS = (8, 10, 15)
# TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIONCLEX, FIOCLEX.
_IOCTLS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)

#: Operation, how many to skip if true, how many if false, operand.
Instruction = tuple[int, int, int, int]
Code = list[Instruction]


def _low(argument: int) -> int:
    return _ARGUMENTS + 8 * argument


def _return(value: int) -> Instruction:
    return (_RETURN, 0, 0, value)


def _load(offset: int) -> Instruction:
    return (_LOAD, 0, 0, offset)


_REFUSE = _return(_ERRNO | errno.EPERM)


def _one_of(argument: int, values: tuple[int, ...], mask: int | None = None) -> Code:
    """Allows a call if the low half of an argument, after `mask`, is one of `values`."""
    code = [_load(_low(argument))]
    if mask is not None:
        code.append((_AND, 0, 0, mask))
    for value in values:
        code += [(_JUMP_EQUAL, 0, 1, value), _return(_ALLOW)]
    return [*code, _REFUSE]


def _none_of(argument: int, values: tuple[int, ...]) -> Code:
    """Allows a call unless the low half of an argument is one of `values`."""
    code = [_load(_low(argument))]
    for value in values:
        code += [(_JUMP_EQUAL, 0, 1, value), _REFUSE]
    return [*code, _return(_ALLOW)]


def _null(argument: int) -> Code:
    """Allows a call if a pointer argument is null."""
    return [
        _load(_low(argument)),
        (_JUMP_EQUAL, 0, 3, 0),
        _load(_low(argument) + 4),
        (_JUMP_EQUAL, 0, 1, 0),
        _return(_ALLOW),
        _REFUSE,
    ]


def _conditional(pid: int) -> dict[str, Code]:
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
        # A descriptor can have an owner that is sent a signal of one's choice.
        "fcntl": _none_of(1, _FCNTL_SIGNALS),
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


def _ranges(calls: list[int]) -> list[tuple[int, int]]:
    """Returns numbers as ranges of consecutive ones, first and last of each."""
    ranges: list[tuple[int, int]] = []
    for call in sorted(calls):
        if ranges and call == ranges[-1][1] + 1:
            ranges[-1] = (ranges[-1][0], call)
        else:
            ranges.append((call, call))
    return ranges


def _any_of(ranges: list[tuple[int, int]], verdict: Instruction, otherwise: Instruction) -> Code:
    """Decides by binary search whether the loaded number is in one of the ranges.

    The kernel runs a new filter once for each system call there is, so that a search in order would
    take longer than all that a small program does.
    """
    if len(ranges) == 1:
        low, high = ranges[0]
        return [
            (_JUMP_GREATER_EQUAL, 0, 2, low),
            (_JUMP_GREATER, 1, 0, high),
            verdict,
            otherwise,
        ]
    middle = len(ranges) // 2
    left = _any_of(ranges[:middle], verdict, otherwise)
    right = _any_of(ranges[middle:], verdict, otherwise)
    return [(_JUMP_GREATER_EQUAL, 0, 1, ranges[middle][0]), (_JUMP, 0, 0, len(left)), *left, *right]


def _prologue() -> Code:
    """Refuses the calls of another architecture, and loads the number of the call."""
    return [
        _load(_ARCHITECTURE),
        (_JUMP_EQUAL, 1, 0, ARCHITECTURES[platform.machine()]),
        _return(_KILL),
        _load(_NUMBER),
        (_JUMP_GREATER_EQUAL, 0, 1, _X32_BIT),
        _return(_ERRNO | errno.ENOSYS),
    ]


def _pack(code: Code) -> bytes:
    return b"".join(struct.pack("HBBI", *instruction) for instruction in code)


@functools.cache
def _packed_search() -> bytes:
    """Returns the part of the filter that is the same for all processes."""
    known = numbers()
    allowed = [known[name] for name in ALLOWED.split() if name in known]
    return _pack(_any_of(_ranges(allowed), _return(_ALLOW), _REFUSE))


def program_filter(pid: int) -> bytes:
    """Returns the filter of a sandboxed process with this process id, as it sees it itself."""
    known = numbers()
    code = _prologue()
    for name, body in _conditional(pid).items():
        code += [(_JUMP_EQUAL, 0, len(body), known[name]), *body]
    return _pack(code) + _packed_search()


def refusing(*names: str) -> bytes:
    """Returns a filter that refuses these calls and allows all others."""
    ranges = _ranges([numbers()[name] for name in names])
    return _pack([*_prologue(), *_any_of(ranges, _REFUSE, _return(_ALLOW))])


def install(packed: bytes) -> None:
    """Applies a filter to this process and all that it starts; it cannot be taken off."""
    kernel.forbid_new_privileges()
    buffer = ctypes.create_string_buffer(packed, len(packed))
    header = ctypes.create_string_buffer(
        struct.pack("HxxxxxxP", len(packed) // _INSTRUCTION_BYTES, ctypes.addressof(buffer))
    )
    kernel.prctl(kernel.PR_SET_SECCOMP, _MODE_FILTER, ctypes.byref(header))


def restrict() -> None:
    """Applies the filter of sandboxed processes to this one."""
    install(program_filter(os.getpid()))
