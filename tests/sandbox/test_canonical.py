"""Tests the canonical solutions of HumanEval and MBPP, where their rows are."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.sandbox import HUMANEVAL, canonical_programs
from lm_eval.sandbox import Limits, run

DATA = Path(__file__).parents[3] / "shared" / "data"

pytestmark = pytest.mark.skipif(not (DATA / HUMANEVAL).is_file(), reason="needs the rows")


@pytest.mark.usefixtures("everything")
def test_all_canonical_solutions_pass_and_truncated_ones_fail() -> None:
    names, programs, tests = canonical_programs(DATA)
    assert len(names) == 1138
    verdicts = run(programs, tests, Limits().with_wall_seconds(10.0))
    assert [n for n, verdict in zip(names, verdicts, strict=True) if not verdict.passed] == []
    cut = [program[: 2 * len(program) // 3].rstrip() + " +" for program in programs[:100]]
    for broken in (cut, [""] * 100):
        assert not any(verdict.passed for verdict in run(broken, tests[:100]))
