"""Tests that programs cannot leave the sandbox, use up the machine, or leave anything behind."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lm_eval.sandbox import Limits, Verdict, isolation, landlock
from lm_eval.sandbox.pool import run_all
from lm_eval.sandbox.processes import descendants
from tests.sandbox.attacks import ATTACKS, TESTS
from tests.sandbox.targets import SECRET_VARIABLE, Targets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks are written for Linux")

LIMITS = Limits(wall_seconds=0.5, cpu_seconds=2.0, scratch_bytes=32 << 20)


@pytest.fixture(scope="module")
def targets() -> Iterator[Targets]:
    made = Targets()
    yield made
    made.close()


def attacked(names: list[str], targets: Targets, mechanisms: tuple[str, ...]) -> dict[str, Verdict]:
    """Returns the verdicts of these attacks; `passed` if one has succeeded."""
    programs = [targets.fill_in(ATTACKS[name].program) for name in names]
    verdicts = run_all(programs, [TESTS] * len(programs), LIMITS, mechanisms)
    return dict(zip(names, verdicts, strict=True))


def claims(name: str, mechanisms: tuple[str, ...]) -> bool:
    """Whether one of the mechanisms, or the limits, are to stop an attack."""
    attack = ATTACKS[name]
    stopping = set(attack.stopped_by) & set(mechanisms)
    if "landlock" in stopping and landlock.version() < attack.landlock:
        stopping.remove("landlock")
    return bool(stopping) or not attack.stopped_by


def succeeded(verdicts: dict[str, Verdict]) -> list[str]:
    return [name for name, verdict in verdicts.items() if verdict.passed]


@pytest.fixture(scope="module")
def verdicts(targets: Targets) -> Iterator[dict[str, Verdict]]:
    os.environ[SECRET_VARIABLE] = "secret"
    yield attacked(list(ATTACKS), targets, isolation().levels)
    del os.environ[SECRET_VARIABLE]


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_fails(name: str, verdicts: dict[str, Verdict]) -> None:
    if not claims(name, isolation().levels):
        pytest.skip(f"not stopped by {isolation().name}")
    assert not verdicts[name].passed


def test_attacks_leave_nothing_behind(targets: Targets, verdicts: dict[str, Verdict]) -> None:
    time.sleep(0.6)  # the time bomb
    if "namespaces" in isolation().levels or "landlock" in isolation().levels:
        targets.assert_untouched()
    assert not [pid for pid in descendants(os.getpid()) if is_of_sandbox(pid)]


def is_of_sandbox(pid: int) -> bool:
    try:
        return b"lm_eval.sandbox" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
