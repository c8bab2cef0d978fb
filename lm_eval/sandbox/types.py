"""The values that go into the sandbox and come out of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

from lm_eval.errors import EvalError

#: Changes whenever a verdict can change; part of the key of stored verdicts.
RUNNER_VERSION = "2"

#: The mechanisms that a machine may allow, from the strongest; `limits` are always active.
MECHANISMS = ("namespaces", "landlock", "seccomp")
LIMITS_ONLY = "limits"


class IsolationError(EvalError, RuntimeError):
    """A machine that cannot isolate programs, or not as strictly as asked for."""


@dataclass(frozen=True)
class Limits:
    """What one program may use; its tests are given the same, and `wall_seconds` covers both."""

    wall_seconds: float = 3.0
    cpu_seconds: float = 4.0
    memory_bytes: int = 1 << 30
    processes: int = 32
    file_bytes: int = 16 << 20
    scratch_bytes: int = 64 << 20
    scratch_files: int = 4096
    open_files: int = 64
    output_bytes: int = 32 << 20

    def with_wall_seconds(self, seconds: float) -> Limits:
        """Returns these limits with another wall limit, and at least as much processor time."""
        return replace(self, wall_seconds=seconds, cpu_seconds=max(self.cpu_seconds, seconds + 1))

    def as_dict(self) -> dict[str, Any]:
        """Returns the limits by name, for results files and the keys of stored verdicts."""
        return asdict(self)


#: The values of `Verdict.outcome`.
OUTCOMES = ("passed", "failed", "timed out", "out of memory", "died", "refused")


@dataclass(frozen=True)
class Verdict:
    """What became of one program.

    Attributes:
        passed: whether all tests passed.
        outcome: `passed`; `failed` (an exception or a failed assertion); `timed out`;
            `out of memory`; `died` (its process ended or its channel broke); `refused` (it returned
            something too large or too deep to be compared).
        detail: the exception, in one line; empty if passed.
        seconds: wall time of program and tests.
    """

    passed: bool
    outcome: str
    detail: str
    seconds: float

    @property
    def reason(self) -> str:
        """The outcome with its detail: `failed: AssertionError in: assert f(1) == 2`."""
        return f"{self.outcome}: {self.detail}" if self.detail else self.outcome


@dataclass(frozen=True)
class Isolation:
    """The mechanisms that this machine allows, found by trying each.

    Attributes:
        name: the active mechanisms, such as `namespaces+landlock+seccomp`; `limits` if none is.
        levels: the active mechanisms besides the limits, from the strongest.
        missing: why each of the others cannot be used, by name.
        user: the account that programs run as: `unprivileged` if the runner is started by root and
            drops to another user, else `same`.
    """

    name: str
    levels: tuple[str, ...]
    missing: dict[str, str]
    user: str = "same"

    def satisfies(self, level: str) -> bool:
        """Whether every mechanism of a level, such as `landlock+seccomp`, is active."""
        return mechanisms_of(level) <= set(self.levels)


def mechanisms_of(level: str) -> set[str]:
    """Returns the mechanisms that a level names: `landlock+seccomp`; none for `limits`."""
    names = {name.strip() for name in level.split("+")} - {LIMITS_ONLY}
    unknown = names - set(MECHANISMS)
    if unknown:
        raise IsolationError(
            f"Unknown isolation {', '.join(sorted(unknown))!r}. A level is {LIMITS_ONLY!r} or one "
            f"or more of {', '.join(MECHANISMS)}, joined by '+': 'landlock+seccomp'."
        )
    return names
