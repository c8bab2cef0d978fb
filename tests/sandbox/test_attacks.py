"""Tests that programs cannot leave the sandbox, use up the machine, or leave anything behind."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from lm_eval.sandbox import Limits, Verdict, isolation, landlock
from lm_eval.sandbox.pool import run_all
from tests.sandbox.attacks import ATTACKS, TESTS
from tests.sandbox.targets import SECRET_VARIABLE, Targets

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="attacks are written for Linux")

LIMITS = Limits(wall_seconds=0.5, cpu_seconds=2.0, scratch_bytes=32 << 20)


@pytest.fixture
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


def test_attacks_fail_and_change_nothing(targets: Targets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_VARIABLE, "secret")
    levels = isolation().levels
    names = [name for name in ATTACKS if claims(name, levels)]
    assert succeeded(attacked(names, targets, levels)) == []
    time.sleep(0.6)  # the time bomb
    targets.assert_untouched()
