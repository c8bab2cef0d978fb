"""Tests that requests are byte for byte those of the published harness, and scores are equal.

Needs `../shared` (the record of the published harness, a mirror of data) and the task folder of
its wheel, which `make test` fetches from PyPI into `.venv`.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools.parity_record import condense

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
TASKS = os.environ.get("LMEVAL_PUBLISHED_TASKS", "")
OWN = Path(__file__).parent / "parity"

needs_shared = pytest.mark.skipif(not (SHARED / "parity").is_dir(), reason="needs ../shared")
needs_published_tasks = pytest.mark.skipif(
    not (SHARED / "parity").is_dir() or not Path(TASKS).is_dir() or not TASKS,
    reason="needs ../shared and LMEVAL_PUBLISHED_TASKS",
)

#: Whether all packages are there that task folders may want. Without torch (`make test-base`) they
#: are not, and cases that miss one are left out.
COMPLETE = importlib.util.find_spec("torch") is not None

#: Cases are run a handful at a time: what costs most is starting.
AT_ONCE = 8


def _chunks(path: Path) -> list[list[str]]:
    names = list(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else []
    return [names[i : i + AT_ONCE] for i in range(0, len(names), AT_ONCE)]


def record(cases: Path, names: list[str], out: Path, tasks: str = TASKS) -> dict[str, Any]:
    """Returns our requests and scores; without `tasks`, those of our own library."""
    done = subprocess.run(
        [sys.executable, SHARED / "parity" / "record.py", cases, out, *names],
        env={**os.environ, "MIRROR": str(SHARED / "data"), "TASKS": tasks, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    failed = {name: case["error"] for name, case in found.items() if "error" in case}
    lacking = {name for name, error in failed.items() if not COMPLETE and "pip install" in error}
    assert not failed.keys() - lacking, failed
    return {name: case for name, case in found.items() if name not in lacking}


def assert_equal(ours: dict[str, Any], theirs: dict[str, Any], names: list[str]) -> None:
    for name in names if COMPLETE else [name for name in names if name in ours]:
        assert ours[name]["requests"] == theirs[name]["requests"], name
        for key in ("n-shot", "versions", "higher_is_better"):
            assert ours[name][key].items() >= theirs[name][key].items(), (name, key)
        for task, scores in theirs[name]["results"].items():
            for score, value in scores.items():
                found = ours[name]["results"][task].get(score, "missing")
                assert found == pytest.approx(value, rel=1e-9, abs=1e-12, nan_ok=True), (
                    name,
                    task,
                    score,
                )
                assert not isinstance(found, float) or math.isnan(found) == math.isnan(value)


@needs_published_tasks
@pytest.mark.parametrize("names", _chunks(SHARED / "parity" / "cases_visible.json"), ids=" ".join)
def test_the_given_cases_agree(names: list[str], tmp_path: Path) -> None:
    theirs = json.loads((SHARED / "parity" / "visible.json").read_text(encoding="utf-8"))
    ours = record(SHARED / "parity" / "cases_visible.json", names, tmp_path / "ours.json")
    assert_equal(condense(ours), condense({name: theirs[name] for name in names}), names)


@needs_published_tasks
@pytest.mark.parametrize("names", _chunks(OWN / "cases.json"), ids=" ".join)
def test_our_own_cases_agree(names: list[str], tmp_path: Path) -> None:
    theirs = json.loads((OWN / "published.json").read_text(encoding="utf-8"))
    ours = record(OWN / "cases.json", names, tmp_path / "ours.json")
    assert_equal(condense(ours), theirs, names)


LIBRARY = json.loads((OWN / "library_cases.json").read_text(encoding="utf-8"))


@needs_shared
@pytest.mark.parametrize("name", LIBRARY)
def test_the_library_asks_and_scores_as_published(name: str, tmp_path: Path) -> None:
    """Our task files give the requests and scores of the published harness with its own files.

    For programs (HumanEval, MBPP) only requests are compared: the published scores were not
    recorded, because that would run programs without a sandbox.
    """
    theirs = json.loads((OWN / "library_published.json").read_text(encoding="utf-8"))
    ours = record(OWN / "library_cases.json", [name], tmp_path / "ours.json", tasks="")
    assert_equal(condense(ours), theirs, [name])
