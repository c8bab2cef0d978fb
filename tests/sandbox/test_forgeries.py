"""Tests that no program is judged right that is wrong, whatever it does in its own process."""

from __future__ import annotations

import pytest

from lm_eval.sandbox import Limits, Verdict, run
from tests.sandbox.forgeries import FORGERIES

LIMITS = Limits(wall_seconds=1.0, cpu_seconds=2.0, memory_bytes=600 << 20)


@pytest.fixture(scope="module")
def verdicts() -> dict[str, Verdict]:
    programs, tests = zip(*FORGERIES.values(), strict=True)
    return dict(zip(FORGERIES, run(programs, tests, LIMITS), strict=True))


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_scores_nothing(name: str, verdicts: dict[str, Verdict]) -> None:
    assert not verdicts[name].passed, verdicts[name]


def test_the_right_program_passes_the_tests_of_the_forgeries() -> None:
    for tests in {tests for _, tests in FORGERIES.values() if "solve(2, 3) == 5\n" in tests}:
        (verdict,) = run(["def solve(a, b): return a + b"], [tests], LIMITS)
        assert verdict.passed, verdict


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("exit with status 0 when called", "failed"),
        ("os._exit(0) when called", "died"),
        ("an unknown kind of answer", "died"),
        ("a string of 300 MB", "refused"),
        ("a list that contains itself", "refused"),
        ("a list that says it has 2**60 items", "died"),
    ],
)
def test_the_outcome_says_why(name: str, outcome: str, verdicts: dict[str, Verdict]) -> None:
    assert verdicts[name].outcome == outcome, verdicts[name]
