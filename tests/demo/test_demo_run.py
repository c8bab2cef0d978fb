"""Tests runs of the demo model on the demo tasks: documented scores, repeatable, any batch size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lm_eval

README = Path(__file__).parents[2] / "README.md"

#: Chance, or what a model that knows nothing would get, and a score nobody should reach.
BOUNDS = {
    ("demo_choice", "acc,none"): (0.25, 0.95),
    ("demo_choice", "acc_norm,none"): (0.25, 0.95),
    ("demo_pairs", "acc,none"): (0.5, 0.98),
    ("demo_lastword", "acc,none"): (0.05, 0.98),
    ("demo_sums", "exact_match,first-answer"): (0.05, 0.98),
    ("demo_sums", "exact_match,majority"): (0.05, 0.98),
}


def scores(**settings: Any) -> dict[str, dict[str, float]]:
    results = lm_eval.simple_evaluate("demo", log_samples=False, tasks=["demo"], **settings)
    assert results is not None
    return {
        task: {k: v for k, v in row.items() if isinstance(v, float) and "," in k}
        for task, row in results["results"].items()
    }


def test_the_scores_are_those_of_the_readme_above_chance_and_short_of_perfect() -> None:
    found = scores()
    for (task, metric), (chance, perfect) in BOUNDS.items():
        value, error = found[task][metric], found[task][metric.replace(",", "_stderr,")]
        assert chance + 3 * error < value < perfect, (task, metric)
    sums = found["demo_sums"]
    assert sums["exact_match,majority"] > sums["exact_match,first-answer"] + 0.15
    for (name, pipeline, metric), (value, error) in shown_in_the_readme().items():
        row = found[TASKS[name]]
        # Another machine may round differently.
        assert row[f"{metric},{pipeline}"] == pytest.approx(value, rel=0.02), (name, metric)
        assert row[f"{metric}_stderr,{pipeline}"] == pytest.approx(error, rel=0.1), (name, metric)


TASKS = {
    "accuracy": "demo::accuracy",
    "choice": "demo_choice",
    "last word": "demo_lastword",
    "pairs": "demo_pairs",
    "stories": "demo_stories",
    "sums": "demo_sums",
}


def shown_in_the_readme() -> dict[tuple[str, str, str], tuple[float, float]]:
    """Returns the scores in the README's table, keyed by task, filter pipeline and metric."""
    shown: dict[tuple[str, str, str], tuple[float, float]] = {}
    name = ""
    for line in README.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip(" -") for cell in line.split("|")]
        if len(cells) == 12 and cells[5] and cells[7].replace(".", "").isdigit():
            name = cells[1] or name
            shown[name, cells[3], cells[5]] = (float(cells[7]), float(cells[9]))
    assert len(shown) == 11
    return shown


@pytest.mark.slow
def test_examples_help() -> None:
    found = {}
    for shots in (0, 3):
        results = lm_eval.simple_evaluate("demo", tasks=["demo_choice"], num_fewshot=shots)
        assert results is not None
        found[shots] = results["results"]["demo_choice"]["acc,none"]
    assert found[3] > found[0] + 0.07


def test_two_runs_are_identical() -> None:
    assert scores(limit=12) == scores(limit=12)


@pytest.mark.slow
@pytest.mark.parametrize("size", [1, 7, 64])
def test_scores_do_not_move_with_the_batch_size(size: int) -> None:
    found, expected = scores(limit=12, batch_size=size), scores(limit=12)
    for task, row in expected.items():
        assert found[task] == pytest.approx(row, rel=1e-6, abs=1e-6), task


def test_the_model_tells_what_it_has_been_through() -> None:
    results: Any = lm_eval.simple_evaluate("demo", tasks=["demo_choice", "demo_sums"], limit=4)
    used = results["usage"]
    assert set(used) == {"tokens_in", "tokens_out", "tokens_shared", "truncated", "failed"}
    assert 0 < used["tokens_shared"] < used["tokens_in"]
    assert used["tokens_out"] > 0
    assert used["truncated"] == 0
    alone: Any = lm_eval.simple_evaluate(
        "demo", {"prefix_sharing": False}, tasks=["demo_choice"], limit=4
    )
    assert alone["usage"]["tokens_shared"] == 0
    short: Any = lm_eval.simple_evaluate("demo", {"max_length": 16}, tasks=["demo_choice"], limit=4)
    assert short["usage"]["truncated"] == 16
    assert short["truncated_requests"] == {"demo_choice": 16}
    assert short["usage"]["tokens_in"] == 16 * 16
