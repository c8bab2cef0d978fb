"""Tests each mechanism alone, and the sandbox as other users and without namespaces."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lm_eval.sandbox import IsolationError, isolation, require_isolation, run
from tests.sandbox.attacks import ATTACKS
from tests.sandbox.forgeries import FORGERIES
from tests.sandbox.targets import Targets
from tests.sandbox.test_attacks import attacked, claims, succeeded

ROOT = Path(__file__).parents[2]
NOBODY = 65534

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the mechanisms are Linux's")


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("mechanism", ["namespaces", "landlock", "seccomp"])
def test_a_mechanism_alone_stops_what_it_claims_to_stop(mechanism: str) -> None:
    if mechanism not in isolation().levels:
        pytest.skip(isolation().missing[mechanism])
    targets = Targets()
    names = [name for name in ATTACKS if claims(name, (mechanism,))]
    try:
        assert succeeded(attacked(names, targets, (mechanism,))) == []
    finally:
        targets.close()


@pytest.mark.usefixtures("everything")
def test_the_attacks_that_mechanisms_stop_succeed_without_them() -> None:
    targets = Targets()
    names = [name for name, attack in ATTACKS.items() if attack.works]
    try:
        verdicts = attacked(names, targets, ())
    finally:
        targets.close()
    failed = {name: verdict for name, verdict in verdicts.items() if not verdict.passed}
    assert len(names) >= 30
    assert not failed


@pytest.mark.usefixtures("everything")
def test_limits_alone_stop_what_they_claim_and_all_forgeries() -> None:
    result = batch("--only", "")
    assert result["passed"] == ["right"]
    assert result["count"] >= 80


@pytest.mark.usefixtures("everything")
def test_nothing_passes_where_namespaces_are_forbidden() -> None:
    result = batch("--forbid-namespaces")
    assert "namespaces" not in result["isolation"]
    assert result["passed"] == ["right"]
    assert result["touched"] == ""


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("options", [[], ["--forbid-namespaces"]])
def test_nothing_passes_for_an_ordinary_user(options: list[str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("the other tests are run by an ordinary user already")
    result = batch(*options, python=python_of_nobody(), user=NOBODY, group=NOBODY)
    assert result["user"] == "same"
    assert result["passed"] == ["right"]
    assert result["touched"] == ""


def batch(*options: str, python: str = sys.executable, **kwargs: Any) -> dict[str, Any]:
    """Returns what `tests.sandbox.batch` prints, started as these keyword arguments say."""
    command = [python, "-B", "-m", "tests.sandbox.batch", *options]
    environment = {"PYTHONPATH": str(ROOT), "PATH": os.defpath}
    if "user" in kwargs:
        kwargs["extra_groups"] = []
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300, **kwargs
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["left"] == []
    return result


def python_of_nobody() -> str:
    """Returns an interpreter that an ordinary user can start, with this checkout."""
    for python in (sys.executable, shutil.which("python3", path=os.defpath)):
        command = [str(python), "-B", "-c", "import tests.sandbox.batch"]
        try:
            done = subprocess.run(
                command, cwd=ROOT, user=NOBODY, group=NOBODY, extra_groups=[],
                env={"PYTHONPATH": str(ROOT)}, capture_output=True,
            )  # fmt: skip
        except OSError:
            continue
        if done.returncode == 0:
            return str(python)
    pytest.skip("nobody can start no interpreter with this checkout")


def test_a_level_that_this_machine_lacks_is_refused_by_name() -> None:
    lacking = list(isolation().missing)
    if not lacking:
        require_isolation("namespaces+landlock+seccomp")
        pytest.skip("this machine lacks nothing")
    with pytest.raises(IsolationError, match=lacking[0]):
        run(["x = 1"], ["assert x == 1"], require=lacking[0])


def test_an_unknown_level_is_refused() -> None:
    with pytest.raises(IsolationError, match="bubblewrap"):
        run(["x = 1"], ["assert x == 1"], require="landlock+bubblewrap")


def test_limits_are_always_there() -> None:
    assert require_isolation("limits") == isolation()


def test_there_are_at_least_fifty_hostile_programs_of_each_kind() -> None:
    assert len(ATTACKS) >= 50
    assert len(FORGERIES) >= 50
