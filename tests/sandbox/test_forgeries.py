"""Tests that no program is judged right that is wrong, whatever it does in its own process."""

from __future__ import annotations

from collections.abc import Sequence

from lm_eval.sandbox import Limits, Verdict, run
from tests.sandbox.forgeries import FORGERIES

LIMITS = Limits(wall_seconds=1.0, cpu_seconds=2.0, memory_bytes=600 << 20)


def judged(names: Sequence[str]) -> dict[str, Verdict]:
    programs, tests = zip(*(FORGERIES[name] for name in names), strict=True)
    return dict(zip(names, run(programs, tests, LIMITS), strict=True))


def test_forgeries_score_nothing() -> None:
    verdicts = judged(list(FORGERIES))
    assert [name for name, verdict in verdicts.items() if verdict.passed] == []


def test_the_right_program_passes_the_tests_of_the_forgeries() -> None:
    for tests in {tests for _, tests in FORGERIES.values() if "solve(2, 3) == 5\n" in tests}:
        (verdict,) = run(["def solve(a, b): return a + b"], [tests], LIMITS)
        assert verdict.passed, verdict


def test_the_outcome_says_why() -> None:
    expected = {
        "exit with status 0 when called": "failed",
        "os._exit(0) when called": "died",
        "an unknown kind of answer": "died",
        "a string of 300 MB": "refused",
        "a list that contains itself": "refused",
        "a list that says it has 2**60 items": "died",
    }
    verdicts = judged(list(expected))
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == expected
