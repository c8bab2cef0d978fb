"""Tests a few damaged task folders; `benchmarks/fuzz.py` tries thousands."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.fuzzing import tasks, worker
from lm_eval import regexes


@pytest.mark.parametrize("block", range(2))
def test_damaged_task_folders_end_in_clear_errors(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lm_eval.data import load
    from lm_eval.tasks import manager

    monkeypatch.setattr(load.hub, "load_from_hub", load.hub.load_from_hub)  # restored afterwards
    monkeypatch.setattr(manager, "task_folders", manager.task_folders)
    monkeypatch.setattr(regexes, "SECONDS", 0.2)
    for seed in range(20 * block, 20 * block + 20):
        started = time.monotonic()
        found = worker.try_seed("tasks", seed)
        assert "outcome" in found, f"seed {seed}: {found}"
        assert time.monotonic() - started < 30


def test_a_seed_always_gives_the_same_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        tasks.make(12, tmp_path / name)
    first, second = (
        {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        for name in ("a", "b")
    )
    assert first == second
