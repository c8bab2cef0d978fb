"""Tests the interim results that are written after each finished task."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from lm_eval import interim
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.config.run import RunConfig
from lm_eval.errors import EvalError
from lm_eval.evaluator import run_evaluation
from lm_eval.results.reader import read_results
from tests.conftest import Folder
from tests.test_results import problems

SEEN: list[dict[str, Any]] = []


@register_model("watching")
class Watching(LM):
    """A model that answers task by task, and reads the output folder after each."""

    partial = Path()
    seen = Path()

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        given = [(-float(len(request.args[1])), False) for request in requests]
        for start in range(0, len(requests), 12):
            batch = slice(start, start + 12)
            asked = [request.args for request in requests[batch]]
            self.cache_hook.add_batch("loglikelihood", asked, given[batch])
            text = self.partial.read_text() if self.partial.exists() else '{"results": {}}'
            self.seen.write_text(text)
            SEEN.append(json.loads(text)["results"])
        return given

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError


@pytest.fixture
def three(colours: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """Writes three tasks, and lifts the limits so that results are written after each of them."""
    text = (colours.path / "colours.yaml").read_text()
    for name in ("two", "three"):
        other = text.replace("task: colours", f"task: {name}").replace("Of what", name)
        colours.write(f"{name}.yaml", other)
    monkeypatch.setattr(interim, "MIN_RUN_SECONDS", 0.0)
    monkeypatch.setattr(interim, "MAX_TIME_SHARE", 1e9)
    SEEN.clear()
    return colours


def evaluated(folder: Folder, **settings: Any) -> Any:
    Watching.partial = folder.path / "out" / "watching" / "results_partial.json"
    Watching.seen = folder.path / "seen.json"
    run = RunConfig(
        model="watching",
        tasks=["colours", "two", "three"],
        include_path=str(folder.path),
        output_path=str(folder.path / "out"),
        **settings,
    )
    return run_evaluation(run)


def test_a_task_that_runs_programs_is_scored_at_the_end(three: Folder) -> None:
    file = three.path / "two.yaml"
    file.write_text(file.read_text() + "unsafe_code: true\n")
    results = evaluated(three, confirm_run_unsafe_code=True)["results"]
    assert "two" in results
    assert [sorted(rows) for rows in SEEN[:2]] == [["colours"], ["colours"]]


def test_a_finished_task_has_its_row_while_others_are_asked(three: Folder) -> None:
    results = evaluated(three)["results"]
    assert [sorted(rows) for rows in SEEN] == [
        ["colours"],
        ["colours", "two"],
        ["colours", "two"],  # all are finished now: the results themselves come next
    ]
    for rows in SEEN:
        for name, row in rows.items():
            assert row == results[name]


def test_partial_results_are_read_like_whole_ones(three: Folder) -> None:
    evaluated(three)
    assert not Watching.partial.exists()  # the results are there
    partial = read_results(Watching.seen)
    assert partial["format"] == 1
    assert sorted(partial["configs"]) == ["colours", "two"]
    assert not problems(partial)


def test_what_an_earlier_run_has_left_is_finished_too(three: Folder) -> None:
    evaluated(three)
    file = three.path / "three.yaml"
    file.write_text(file.read_text().replace("three colour", "another colour"))
    more = three.path / "two.yaml"
    more.write_text(more.read_text().replace("two colour", "yet another colour"))
    SEEN.clear()
    evaluated(three)
    assert [sorted(rows) for rows in SEEN] == [["colours", "two"], ["colours", "two"]]


def test_it_takes_no_time_that_matters(three: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interim, "MIN_RUN_SECONDS", 60.0)
    evaluated(three)
    assert SEEN == [{}, {}, {}]


def test_a_task_that_cannot_be_scored_does_not_keep_the_others_from_being_asked(
    three: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    three.write("own.py", "def process(doc, results):\n    raise KeyError('x')\n")
    file = three.path / "colours.yaml"
    text = file.read_text().replace(
        "metric_list:", "process_results: !function own.process\nmetric_list:"
    )
    file.write_text(text)
    with caplog.at_level(logging.WARNING), pytest.raises(EvalError, match="'colours', document 0"):
        evaluated(three)
    assert "scoring it failed: KeyError: 'x' (own.py:2) The run continues with" in caplog.text
    assert sorted(SEEN[-1]) == ["two"]
    assert len(SEEN) == 3
