"""Tests runs in several processes, simulated by models that act as different ranks."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Instance
from lm_eval.config.run import RunConfig
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.keys import prompts_hash
from lm_eval.engine.store import MISSING, AnswerStore
from lm_eval.errors import ModelError
from lm_eval.launch import launched_rank
from lm_eval.logs import setup_logging
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder
from tests.test_evaluate import evaluated, painter


def of_two(lm: ScriptedLM, rank: int, gather: Callable[[Any], Any]) -> ScriptedLM:
    lm._rank, lm._world_size = rank, 2
    lm.gather_object = lambda obj, dst=0: gather(obj)  # type: ignore[method-assign]
    return lm


def test_processes_answer_a_share_each_and_the_first_collects(colours: Folder) -> None:
    """The second process runs first; its messages are passed to the first one."""
    expected = evaluated(colours, painter(), ["colours"])["results"]["colours"]
    handed: list[Any] = []
    second = of_two(painter(), 1, handed.append)
    tasks = TaskManager(include_path=str(colours.path)).load("colours")
    assert lm_eval.evaluate(second, tasks) is None
    assert len(second.requests) == 6
    theirs = iter(handed)
    first = of_two(painter(), 0, lambda mine: [mine, next(theirs)])
    assert evaluated(colours, first, ["colours"])["results"]["colours"] == expected
    assert len(first.requests) == 6


def _failing(mine: Any) -> list[Any]:
    """Simulates another process that agrees on the requests and fails on its share."""
    return [mine, ([], "it fell over") if isinstance(mine[0], list) else mine]


def test_a_process_that_fails_tells_the_one_that_collects(colours: Folder) -> None:
    with pytest.raises(ModelError, match="process 1: it fell over"):
        evaluated(colours, of_two(painter(), 0, _failing), ["colours"])


def test_a_process_tells_at_once_what_it_failed_on(
    colours: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """The error must not wait for the other processes, which may take hours."""
    lm = of_two(ScriptedLM(), 1, lambda mine: None)
    with pytest.raises(ModelError):
        evaluated(colours, lm, ["colours"])
    assert "process 1: ScriptedLM.loglikelihood failed" in caplog.text


def test_a_model_that_cannot_gather_is_an_error(colours: Folder) -> None:
    with pytest.raises(ModelError, match="2 processes, but its gather_object returned"):
        evaluated(colours, of_two(painter(), 0, lambda mine: [mine]), ["colours"])


def test_processes_that_made_different_requests_are_refused(colours: Folder) -> None:
    lm = of_two(painter(), 0, lambda mine: [mine, ("another hash", 12)])
    with pytest.raises(ModelError, match=r"different requests \(tasks: colours\).*PYTHONHASHSEED"):
        evaluated(colours, lm, ["colours"])
    assert lm.requests == []


def test_repeats_of_one_request_stay_in_one_process() -> None:
    """Repeats are numbered in order, and each number has its own sample."""
    requests = [
        Instance("generate_until", {}, (text, {}), 0, ("t", i, 5)) for i, text in enumerate("abc")
    ]
    handed: list[Any] = []
    second = of_two(ScriptedLM(generate=lambda text, _: text), 1, handed.append)
    answer(executor_for(RunConfig(), second), requests)
    assert [request.args[0] for request in second.requests] == ["b"] * 5 + ["c"] * 5
    theirs = iter(handed)
    first = of_two(ScriptedLM(generate=lambda text, _: text), 0, lambda mine: [mine, next(theirs)])
    answer(executor_for(RunConfig(), first), requests)
    assert [request.resps for request in requests] == [["a"] * 5, ["b"] * 5, ["c"] * 5]


def test_answers_asked_by_all_processes_are_counted(colours: Folder, tmp_path: Path) -> None:
    handed: list[Any] = []
    tasks = {"tasks": ["colours"], "task_manager": TaskManager(include_path=colours.path)}
    second = of_two(painter(), 1, handed.append)
    lm_eval.simple_evaluate(second, use_cache=str(tmp_path / "2"), **tasks)
    theirs = iter(handed)
    first = of_two(painter(), 0, lambda mine: [mine, next(theirs)])
    results: Any = lm_eval.simple_evaluate(first, use_cache=str(tmp_path / "1"), **tasks)
    assert results["answers"] == {"asked": 12, "requests": 12}


def test_a_fresh_run_of_several_processes_asks_every_share_again(
    colours: Folder, tmp_path: Path
) -> None:
    cache = str(tmp_path / "cache")
    tasks = {"tasks": ["colours"], "task_manager": TaskManager(include_path=colours.path)}
    lm_eval.simple_evaluate(painter(), use_cache=cache, **tasks)
    for fresh, asked in ((False, 0), (True, 6)):
        handed: list[Any] = []
        second = of_two(painter(), 1, handed.append)
        lm_eval.simple_evaluate(second, use_cache=cache, fresh=fresh, **tasks)
        assert len(second.requests) == asked
        theirs = iter(handed)
        first = of_two(painter(), 0, lambda mine, theirs=theirs: [mine, next(theirs)])
        results: Any = lm_eval.simple_evaluate(first, use_cache=cache, fresh=fresh, **tasks)
        assert len(first.requests) == asked
        assert results["answers"] == {"asked": 2 * asked, "requests": 12}


def test_answers_kept_after_forgetting_are_found(tmp_path: Path) -> None:
    with AnswerStore(tmp_path / "s", "m") as one:
        one.add("generate_until", [b"1" * 16, b"2" * 16], ["a", "b"])
        one.refresh()
        one.forget([b"1" * 16, None])
        with AnswerStore(tmp_path / "s", "m") as two:
            assert two.find([b"1" * 16, b"2" * 16]) == [MISSING, "b"]
            two.add("generate_until", [b"1" * 16, b"3" * 16], ["c", "d"])
        one.refresh()
        assert one.find([b"1" * 16, b"2" * 16, b"3" * 16]) == ["c", "b", "d"]


def test_requests_with_pictures_are_alike_in_every_process() -> None:
    """An image is a different object in each process, at another memory address."""
    made = [Instance("generate_until", {}, ("a", {}, {"visual": [object()]}), 0) for _ in "12"]
    assert prompts_hash(made[:1]) == prompts_hash(made[1:])
    other = Instance("generate_until", {}, ("b", {}, {"visual": [object()]}), 0)
    assert prompts_hash([other]) != prompts_hash(made[:1])


@pytest.mark.parametrize(
    ("rank", "size", "found"), [(None, None, 0), ("1", None, 0), ("1", "1", 0), ("1", "2", 1)]
)
def test_a_rank_counts_among_several_processes_alone(
    rank: str | None, size: str | None, found: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A scheduler may set RANK for a single process; its results must be written anyway."""
    for name, value in (("RANK", rank), ("WORLD_SIZE", size)):
        monkeypatch.delenv(name, raising=False)
        if value is not None:
            monkeypatch.setenv(name, value)
    assert launched_rank() == found


def test_of_several_processes_each_signs_and_one_is_talkative(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in "01":
        monkeypatch.setenv("RANK", rank)
        setup_logging("INFO")
        logging.getLogger("lm_eval.x").info("by the way")
        logging.getLogger("lm_eval.x").warning("look")
    said = capsys.readouterr().err.splitlines()
    assert said == ["lm-eval[0]: by the way", "lm-eval[0]: look", "lm-eval[1]: look"]
