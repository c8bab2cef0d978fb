"""A bounded version of benchmarks/fuzz_runs.py: damaged files of runs never mislead."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")


@pytest.fixture
def fuzzing(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parent.parent / "benchmarks"))
    import fuzzing.runs

    yield fuzzing.runs
    for name in [name for name in sys.modules if name.partition(".")[0] == "fuzzing"]:
        del sys.modules[name]


@pytest.mark.parametrize(("kind", "count"), [("stores", 12), ("folders", 18)])
def test_damaged_files_of_a_run_are_named_and_never_change_scores_silently(
    fuzzing: Any, kind: str, count: int
) -> None:
    found = fuzzing.fuzz(kind, count, seed=3)
    assert found.failures == []
    assert found.trials == count
    assert found.outcomes["refused with a message"] + found.outcomes["same scores, with a warning"]
