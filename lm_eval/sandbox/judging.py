"""Judges programs: the functions that tasks call."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lm_eval.sandbox.pool import run_all
from lm_eval.sandbox.probe import isolation, require_isolation
from lm_eval.sandbox.types import Limits, Verdict


def run(
    programs: Sequence[str],
    tests: Sequence[str],
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    *,
    workers: int | None = None,
    require: str | None = None,
    report: Callable[[int, Verdict], None] | None = None,
    given: Sequence[str] | None = None,
) -> list[Verdict]:
    """Returns one verdict per program: whether it passes the tests of the same index.

    Args:
        programs: the programs, as text.
        tests: for each program, the code that tests it.
        limits: what each program may use.
        workers: how many programs run at once; as many as there are processors if None.
        require: the mechanisms that must be active, such as `landlock+seccomp`; `IsolationError` is
            raised if this machine lacks one.
        report: is called with the index and the verdict of each program when it is known, in the
            order in which programs end, from the calling thread.
        given: for each program, the text of the task that it begins with, such as a prompt with
            helper functions; "" for none. Tests that call these functions get the ones of this
            text, whatever the program has made of them.
    """
    if require is not None:
        require_isolation(require)
    return run_all(
        programs, tests, limits, isolation().levels, workers=workers, report=report, given=given
    )


def calibrate(
    programs: Sequence[str],
    tests: Sequence[str],
    limits: Limits = Limits(),  # noqa: B008 (immutable)
    *,
    margin: float = 5.0,
    workers: int | None = None,
) -> Limits:
    """Returns limits with a wall limit of at least `margin` times what the slowest solution takes.

    On a slow machine the wall limit grows, so that right answers do not time out; it is never less
    than that of `limits`.

    Args:
        programs: canonical solutions.
        tests: their tests.
        limits: the limits to start from.
        margin: how much slower than its canonical solution a program may be.
        workers: how many run at once, as in `run`.
    """
    generous = limits.with_wall_seconds(10 * limits.wall_seconds)
    verdicts = run(programs, tests, generous, workers=workers)
    slowest = max((verdict.seconds for verdict in verdicts if verdict.passed), default=0.0)
    return limits.with_wall_seconds(max(limits.wall_seconds, margin * slowest))
