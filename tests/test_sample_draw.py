"""Tests `--sample`: seeded per task, and each smaller sample is part of every larger one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.cli import main
from lm_eval.config.run import RunConfig
from lm_eval.data.draw import draw
from lm_eval.errors import ConfigError


def test_draws_are_nested_seeded_and_of_each_task_its_own() -> None:
    hundred, two_hundred = (draw(1000, n, 1, "a") for n in (100, 200))
    assert len(hundred) == 100
    assert set(hundred) < set(two_hundred)
    assert hundred == sorted(hundred) == draw(1000, 100, 1, "a")
    assert hundred != draw(1000, 100, 2, "a")
    assert hundred != draw(1000, 100, 1, "b")
    assert draw(1000, 0.1, 1, "a") == hundred
    assert draw(7, 100, 1, "a") == list(range(7))
    assert len(draw(7, 0.01, 1, "a")) == 1


def test_every_document_is_drawn_about_as_often() -> None:
    counts = [0] * 20
    for seed in range(2000):
        for number in draw(20, 5, seed, "t"):
            counts[number] += 1
    assert min(counts) > 400  # 500 each are expected, with a standard deviation of 19
    assert max(counts) < 600


def test_a_run_asks_about_what_was_drawn_and_says_so(tmp_path: Path) -> None:
    words = ("--model", "dummy", "--tasks", "demo_choice,demo_sums", "--log_samples")
    more = ("--sample", "4", "--sample_seed", "7")
    assert main(["run", *words, *more, "-o", str(tmp_path)]) == 0
    (file,) = tmp_path.rglob("results_2*")
    results = json.loads(file.read_text())
    assert (results["config"]["sample"], results["config"]["sample_seed"]) == (4, 7)
    for task in ("demo_choice", "demo_sums"):
        count = results["n-samples"][task]
        assert count["effective"] == 4
        (log,) = tmp_path.rglob(f"samples_{task}_*")
        rows = map(json.loads, log.read_text().splitlines())
        assert sorted({row["doc_id"] for row in rows}) == draw(count["original"], 4, 7, task)


def test_python_takes_it_too() -> None:
    results: Any = lm_eval.simple_evaluate(
        "dummy", tasks=["demo_choice"], sample=0.1, sample_seed=3, log_samples=True
    )
    samples = results["samples"]["demo_choice"]
    count = results["n-samples"]["demo_choice"]["original"]
    assert [sample["doc_id"] for sample in samples] == draw(count, 0.1, 3, "demo_choice")


@pytest.mark.parametrize("more", [{"limit": 3}, {"samples": {"demo_choice": [1]}}])
def test_one_way_of_choosing_is_enough(more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="cannot be combined"):
        RunConfig(sample=5, **more)


def test_nothing_is_not_a_draw() -> None:
    with pytest.raises(ConfigError, match="sample must be positive"):
        RunConfig(sample=0)
