"""Executors hand requests to models, and report an answer or a failure for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Failure, Instance
from lm_eval.api.model import LM
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.executor import Executor, Outcome, Report
from lm_eval.engine.in_process import InProcess
from lm_eval.engine.store import AnswerStore
from lm_eval.errors import ModelError
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder


def instance(text: str, repeats: int = 1, doc_id: int = 0) -> Instance:
    settings = {"until": ["\n"], "do_sample": True}
    about = ("a_task", doc_id, repeats)
    return Instance("generate_until", {}, (text, settings), 0, about)


class Echo(Executor):
    """An executor of a few lines: answers each prompt with itself, one report per request."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for position, request in enumerate(requests):
            text = request.args[0]
            self.asked.append(text)
            outcomes.append(Failure("too long") if text == "bad" else f"{text}{position}")
            if report is not None:
                report([position], outcomes[-1:])
        return outcomes


def test_an_executor_of_a_few_lines_serves_a_run(tmp_path: Path) -> None:
    """All that `answer` needs is `execute`: stored answers stay out, repeats are grouped."""
    executor, seen = Echo(), []
    with AnswerStore(tmp_path / "s", "m") as store:
        requests = [instance("a", 2), instance("b"), instance("b")]
        assert answer(executor, requests, store, 1, lambda keys: seen.extend(keys)) == Counter()
        assert [request.resps for request in requests] == [["a0", "a1"], ["b2"], ["b2"]]
        assert executor.asked == ["a", "a", "b"]  # equal requests are asked once
        assert len(seen) == 3
        more = [instance("a", 2), instance("c")]
        answer(executor, more, store, 1)
        assert executor.asked[3:] == ["c"]
        assert more[0].resps == ["a0", "a1"]


def test_a_failure_is_counted_and_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = Echo()
    with AnswerStore(tmp_path / "s", "m") as store:
        for _ in range(2):
            requests = [instance("good"), instance("bad", doc_id=7)]
            assert answer(executor, requests, store) == Counter({"a_task": 1})
            assert [request.failed for request in requests] == [False, True]
            assert requests[0].resps == ["good0"]
    assert executor.asked == ["good", "bad", "bad"]
    assert "task a_task, document 7: no answer: too long" in caplog.text


def test_positions_and_types_of_reports_are_those_of_the_requests() -> None:
    """A model reports texts in an order of its own; repeats are settled when it returns."""

    class Model(ScriptedLM):
        def generate_until(self, requests: list[Instance]) -> list[str]:
            given = [f"answer {i}" for i in range(len(requests))]
            self.cache_hook.add_batch(
                "generate_until", [r.args for r in reversed(requests)], given[::-1]
            )
            return given

    repeated, single = instance("a", 2), instance("b")
    reports: dict[int, Any] = {}
    asked = [repeated, repeated, single]
    outcomes = InProcess(Model()).execute(
        "generate_until", iter(asked), lambda at, given: reports.update(zip(at, given, strict=True))
    )
    assert outcomes == ["answer 0", "answer 1", "answer 2"]
    assert [reports[i] for i in range(3)] == outcomes


def test_a_model_without_processes_runs_in_this_one() -> None:
    assert type(executor_for(ScriptedLM())) is InProcess
    assert InProcess(ScriptedLM()).execute("loglikelihood", [], None) == []


# -- what failures do to scores -----------------------------------------------------------------


class Choosy(LM):
    """Likes the first choice, and refuses to talk about what it is told to avoid."""

    def __init__(self, avoid: str = "", outcome: Any = None) -> None:
        super().__init__()
        self.avoid, self.outcome = avoid, outcome

    def loglikelihood(self, requests: list[Instance]) -> Any:
        return [
            Failure("content filter")
            if self.avoid and self.avoid in request.args[0]
            else (-1.0 - request.idx, False)
            for request in requests
        ]

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: list[Instance]) -> Any:
        return [self.outcome if i == 0 else "4" for i in range(len(requests))]


def test_a_document_without_an_answer_is_left_out_of_the_mean(
    colours: Folder, caplog: pytest.LogCaptureFixture
) -> None:
    """Grass and snow and the sea are right; without the sea, two of five are."""
    manager = TaskManager(include_path=str(colours.path))
    whole: Any = lm_eval.simple_evaluate(Choosy(), tasks=["colours"], task_manager=manager)
    assert whole["results"]["colours"]["acc,none"] == 0.5
    assert whole["failed_requests"] == {}
    results: Any = lm_eval.simple_evaluate(Choosy("sea"), tasks=["colours"], task_manager=manager)
    assert results["results"]["colours"]["acc,none"] == 0.4
    assert results["n-samples"]["colours"] == {"original": 6, "effective": 5}
    assert results["failed_requests"] == {"colours": 2}
    assert [sample["doc_id"] for sample in results["samples"]["colours"]] == [0, 1, 2, 3, 5]
    assert "colours: 1 documents got no answer and are left out" in caplog.text


def test_a_model_that_answers_nothing_has_no_score(colours: Folder) -> None:
    manager = TaskManager(include_path=str(colours.path))
    with pytest.raises(ModelError, match="task 'colours': the model answered none of its doc"):
        lm_eval.simple_evaluate(Choosy("colour"), tasks=["colours"], task_manager=manager)


def test_none_counts_as_empty_and_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    """As published for the score; the count says that there was no answer."""
    results: Any = lm_eval.simple_evaluate(Choosy(), tasks=["demo_sums"], limit=2)
    first = results["samples"]["demo_sums"][0]
    assert first["resps"][0][0] == ""
    assert results["failed_requests"] == {"demo_sums": 1}
    assert results["n-samples"]["demo_sums"]["effective"] == 2
    assert "gave no answer to 1 requests; they count as empty" in caplog.text
