"""Tests executors, which send requests to models and report an answer or a failure for each."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import lm_eval
from lm_eval.api.instance import Failure, Instance
from lm_eval.api.model import LM
from lm_eval.config.run import RunConfig
from lm_eval.engine.answer import answer
from lm_eval.engine.choose_executor import executor_for
from lm_eval.engine.executor import Executor, Outcome, Report
from lm_eval.engine.in_process import InProcess
from lm_eval.engine.store import AnswerStore
from lm_eval.errors import ModelError
from lm_eval.models.conventions import repeat_numbers
from lm_eval.models.scripted import ScriptedLM
from lm_eval.tasks import TaskManager
from tests.conftest import Folder


def instance(text: str, repeats: int = 1, doc_id: int = 0) -> Instance:
    settings = {"until": ["\n"], "do_sample": True}
    about = ("a_task", doc_id, repeats)
    return Instance("generate_until", {}, (text, settings), 0, about)


class Echo(Executor):
    """A minimal executor: it answers each prompt with itself, one report per request."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for position, request in enumerate(requests):
            text = request.args[0]
            self.prompts.append(text)
            outcomes.append(Failure("too long") if text == "bad" else f"{text}{position}")
            if report is not None:
                report([position], outcomes[-1:])
        return outcomes


def test_an_executor_of_a_few_lines_serves_a_run(tmp_path: Path) -> None:
    """`answer` needs only `execute`. Stored answers are not requested again."""
    executor, seen = Echo(), []
    with AnswerStore(tmp_path / "s", "m") as store:
        requests = [instance("a", 2), instance("b"), instance("b")]
        assert answer(executor, requests, store, 1, seen.extend).failed == Counter()
        assert [request.resps for request in requests] == [["a0", "a1"], ["b2"], ["b2"]]
        assert executor.prompts == ["a", "a", "b"]  # equal requests are sent once
        assert len(seen) == 3
        more = [instance("a", 2), instance("c")]
        answer(executor, more, store, 1)
        assert executor.prompts[3:] == ["c"]
        assert more[0].resps == ["a0", "a1"]


def test_a_failure_is_counted_and_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    executor = Echo()
    with AnswerStore(tmp_path / "s", "m") as store:
        for _ in range(2):
            requests = [instance("good"), instance("bad", doc_id=7)]
            assert answer(executor, requests, store).failed == Counter({"a_task": 1})
            assert [request.failed for request in requests] == [False, True]
            assert requests[0].resps == ["good0"]
    assert executor.prompts == ["good", "bad", "bad"]
    assert "task a_task, document 7: the model gave no answer (too long)" in caplog.text


def test_failures_are_logged_once_per_document_and_not_for_all(
    caplog: pytest.LogCaptureFixture,
) -> None:
    requests = [instance("bad", repeats=3, doc_id=number) for number in range(9)]
    assert answer(Echo(), requests).failed == Counter({"a_task": 27})
    logged = re.findall(r"document (\d+): the model gave no answer", caplog.text)
    assert logged == ["0", "1", "2", "3", "4"]


def test_positions_and_types_of_reports_are_those_of_the_requests() -> None:
    """A model reports answers in any order; repeats are assigned when it returns."""

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
    assert sorted(reports) == [0, 1, 2]
    assert sorted(reports.values()) == outcomes  # which repeat was meant, the outcomes tell


def test_a_model_without_processes_runs_in_this_one() -> None:
    assert type(executor_for(RunConfig(), ScriptedLM())) is InProcess
    assert InProcess(ScriptedLM()).execute("loglikelihood", [], None) == []


# -- what failures do to scores -----------------------------------------------------------------


class Choosy(LM):
    """Prefers the first choice, and fails on prompts that contain `avoid`."""

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
    """Grass, snow and the sea are correct; without the sea, two of five are."""
    manager = TaskManager(include_path=str(colours.path))
    whole: Any = lm_eval.simple_evaluate(Choosy(), tasks=["colours"], task_manager=manager)
    assert whole["results"]["colours"]["acc,none"] == 0.5
    assert whole["failed_requests"] == {}
    results: Any = lm_eval.simple_evaluate(
        Choosy("sea"), tasks=["colours"], task_manager=manager, max_failed=None
    )
    assert results["results"]["colours"]["acc,none"] == 0.4
    assert results["n-samples"]["colours"] == {"original": 6, "effective": 5}
    assert results["failed_requests"] == {"colours": 2}
    assert [sample["doc_id"] for sample in results["samples"]["colours"]] == [0, 1, 2, 3, 5]
    assert "colours: 1 of its documents got no answer and are left out" in caplog.text


def test_a_model_that_answers_nothing_has_no_score(colours: Folder) -> None:
    manager = TaskManager(include_path=str(colours.path))
    with pytest.raises(ModelError, match="the model answered no document of colours"):
        lm_eval.simple_evaluate(
            Choosy("colour"), tasks=["colours"], task_manager=manager, max_failed=None
        )


def test_where_answers_are_stored_is_not_said_if_there_are_none(
    colours: Folder, tmp_path: Path
) -> None:
    manager = TaskManager(include_path=str(colours.path))
    with pytest.raises(ModelError, match=r"there is nothing to score\.$"):
        lm_eval.simple_evaluate(
            Choosy("colour"), tasks=["colours"], task_manager=manager, max_failed=None
        )
    with pytest.raises(ModelError, match=r"to score\. To send the requests again, call simple_ev"):
        lm_eval.simple_evaluate(
            Choosy("colour"),
            tasks=["colours"],
            task_manager=manager,
            output_path=str(tmp_path),
            max_failed=None,
        )


def test_a_method_that_is_not_implemented_is_found_before_any_request_is_sent(
    colours: Folder, tmp_path: Path
) -> None:
    class Writer(ScriptedLM):
        def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
            """Has a docstring, too."""
            raise NotImplementedError("the server returns no log-probabilities")

    lm = Writer(generate=lambda *_: "4")
    with pytest.raises(NotImplementedError, match=r"'colours' needs Writer.loglikelihood.*the ser"):
        lm_eval.simple_evaluate(
            lm,
            tasks=["demo_sums", "colours"],
            limit=2,
            task_manager=TaskManager(include_path=str(colours.path)),
            output_path=str(tmp_path / "out"),
        )
    assert lm.requests == []
    assert not (tmp_path / "out").exists()
    results = lm_eval.simple_evaluate(lm, tasks=["demo_sums"], limit=2)
    assert results is not None


def test_none_counts_as_empty_and_as_failed(caplog: pytest.LogCaptureFixture) -> None:
    """The score is that of the published harness; the failure is counted."""
    results: Any = lm_eval.simple_evaluate(Choosy(), tasks=["demo_sums"], limit=2)
    first = results["samples"]["demo_sums"][0]
    assert first["resps"][0][0] == ""
    assert results["failed_requests"] == {"demo_sums": 1}
    assert results["n-samples"]["demo_sums"]["effective"] == 2
    assert "returned None for 1 requests; their answers are scored as empty strings" in caplog.text


# -- what a review found ------------------------------------------------------------------------


def test_a_store_that_fails_in_the_background_is_not_taken_for_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Answers arrive one by one and a timer writes them; no report follows the last write."""
    from lm_eval.errors import StoreError

    class Slow(ScriptedLM):
        def generate_until(self, requests: list[Instance]) -> list[str]:
            for request in requests:
                self.cache_hook.add_partial("generate_until", request.args, "x")
            time.sleep(0.3)
            return ["x"] * len(requests)

    def full(self: AnswerStore, *_: Any) -> None:
        raise StoreError("the disk is full")

    with AnswerStore(tmp_path / "s", "m") as store:
        monkeypatch.setattr(AnswerStore, "add", full)
        with pytest.raises(StoreError, match="the disk is full"):
            answer(InProcess(Slow()), [instance("a"), instance("b")], store)


def test_answers_that_a_model_yields_are_stored_as_they_come(tmp_path: Path) -> None:
    class Yielding(ScriptedLM):
        def generate_until(self, requests: list[Instance]) -> Any:
            for i, _ in enumerate(requests):
                if i == 3:
                    time.sleep(0.2)
                    raise ConnectionError("gone")
                yield f"answer {i}"

    requests = [instance(text) for text in "abcd"]
    with AnswerStore(tmp_path / "s", "m") as store:
        with pytest.raises(ModelError, match="ConnectionError: gone"):
            answer(InProcess(Yielding()), requests, store)
        assert len(store) == 3


def test_a_failed_repeat_does_not_keep_another_ones_answer(tmp_path: Path) -> None:
    """The failed repeat is sent again, and counts as the last one."""

    class Half(ScriptedLM):
        def generate_until(self, requests: list[Instance]) -> Any:
            self.cache_hook.add_partial("generate_until", requests[-1].args, "B")
            time.sleep(0.2)
            return [*[Failure("busy")] * (len(requests) - 1), "B"]

    first, again = instance("a", 2), instance("a", 2)
    with AnswerStore(tmp_path / "s", "m") as store:
        assert answer(InProcess(Half()), [first], store).failed == Counter({"a_task": 1})
        assert first.resps == ["B", Failure("busy")]
    executor = Echo()
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(executor, [again], store)
    assert executor.prompts == ["a"]
    assert again.resps == ["B", "a0"]


def test_finished_repeats_are_kept_in_any_order_and_the_others_asked_by_number(
    tmp_path: Path,
) -> None:
    """A later repeat does not wait for an earlier one, and keeps its number after a crash."""
    asked: list[tuple[int, ...]] = []

    class OutOfOrder(ScriptedLM):
        def generate_until(self, requests: list[Instance]) -> Any:
            numbers = repeat_numbers(requests)
            asked.append(numbers)
            answers = [f"repeat {number}" for number in numbers]
            for position in (3, 1) if len(requests) == 4 else ():
                self.cache_hook.add_at("generate_until", [position], [answers[position]])
            if len(requests) == 4:
                raise ConnectionError("killed")
            return answers

    first, again = instance("a", 4), instance("a", 4)
    with AnswerStore(tmp_path / "s", "m") as store:
        with pytest.raises(ModelError, match="killed"):
            answer(InProcess(OutOfOrder()), [first], store)
        assert len(store) == 2
    with AnswerStore(tmp_path / "s", "m") as store:
        assert answer(InProcess(OutOfOrder()), [again], store).sent == 2
    assert asked == [(0, 1, 2, 3), (0, 2)]
    assert again.resps == [f"repeat {number}" for number in range(4)]


def test_requests_of_one_text_with_other_settings_are_told_apart(tmp_path: Path) -> None:
    long, short = instance("a"), instance("a")
    short.arguments = ("a", {"until": ["."], "do_sample": True})

    class Backwards(ScriptedLM):
        def generate_until(self, requests: list[Instance]) -> Any:
            for request in reversed(requests):
                said = f"until {request.args[1]['until'][0]!r}"
                self.cache_hook.add_partial("generate_until", request.args, said)
            time.sleep(0.2)
            raise RuntimeError("and then it broke")

    with AnswerStore(tmp_path / "s", "m") as store, pytest.raises(ModelError):
        answer(InProcess(Backwards()), [long, short], store)
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(Echo(), [long, short], store)
    assert (long.resps, short.resps) == (["until '\\n'"], ["until '.'"])


def test_a_run_with_failures_can_be_scored_again(colours: Folder, tmp_path: Path) -> None:
    call: dict[str, Any] = {
        "tasks": ["colours"],
        "task_manager": TaskManager(include_path=str(colours.path)),
        "output_path": str(tmp_path / "out"),
        "max_failed": 2,
    }
    results: Any = lm_eval.simple_evaluate(Choosy("sea"), **call)
    again = lm_eval.score(tmp_path / "out", include_path=str(colours.path))
    assert again["results"] == results["results"]
    mended: Any = lm_eval.simple_evaluate(Choosy(), **call)
    assert mended["answers"] == {"asked": 2, "requests": 12}
    assert mended["results"]["colours"]["acc,none"] == 0.5
    assert (
        lm_eval.score(tmp_path / "out", include_path=str(colours.path))["results"]
        == (mended["results"])
    )


def test_a_task_without_any_answer_leaves_the_others_their_scores(colours: Folder) -> None:
    text = (colours.path / "colours.yaml").read_text()
    other = text.replace("task: colours", "task: hues").replace("Of what colour", "Which hue")
    colours.write("hues.yaml", other)
    results: Any = lm_eval.simple_evaluate(
        Choosy("hue"),
        tasks=["colours", "hues"],
        task_manager=TaskManager(include_path=str(colours.path)),
        max_failed=0.5,
    )
    assert list(results["results"]) == ["colours"]
    assert results["failed_requests"] == {"hues": 12}


def test_failures_count_for_tasks_of_any_name(colours: Folder) -> None:
    """The key in `evaluate`'s dictionary may differ from the task's name."""
    (task,) = TaskManager(include_path=str(colours.path)).load("colours")["tasks"].values()
    results: Any = lm_eval.evaluate(Choosy("sea"), {"mine": task}, max_failed=None)
    assert results["results"]["mine"]["sample_len"] == 5


def test_a_run_stops_when_more_requests_fail_than_allowed(colours: Folder) -> None:
    call: Any = {"tasks": ["colours"], "task_manager": TaskManager(include_path=str(colours.path))}
    with pytest.raises(ModelError, match=r"2 of 12 requests failed.*document 4\): content filter"):
        lm_eval.simple_evaluate(Choosy("sea"), **call)  # 5 % of 12 requests, rounded up, is one
    results: Any = lm_eval.simple_evaluate(Choosy("sea"), **call, max_failed=2)
    assert results["partial"] is True
    assert results["unanswered_documents"] == {"colours": {"4": "content filter"}}
    whole: Any = lm_eval.simple_evaluate(Choosy(), **call)
    assert "partial" not in whole


@pytest.mark.parametrize(
    ("positions", "outcomes", "returned", "said"),
    [
        ([0, 1, 2], ["a", "b"], ["a", "b"], "reported 2 outcomes for the positions [0, 1, 2] of 2"),
        ([7], ["a"], ["a", "b"], "for the positions [7] of 2 requests"),
        ([], [], ["a"], "returned 1 outcomes for 2 requests"),
    ],
)
def test_an_executor_that_breaks_its_contract_damages_nothing(
    tmp_path: Path, positions: Any, outcomes: Any, returned: Any, said: str
) -> None:
    class Bad(Executor):
        def execute(self, kind: str, requests: Any, report: Any) -> list[Outcome]:
            report(positions, outcomes)
            return list(returned)

    with AnswerStore(tmp_path / "s", "m") as store:
        with pytest.raises(ModelError, match=re.escape(said)):
            answer(Bad(), [instance("a"), instance("b")], store)
        assert len(store) == 0
    with AnswerStore(tmp_path / "s", "m") as store:
        assert len(store) == 0


def test_what_an_executor_returns_has_the_last_word(tmp_path: Path) -> None:
    """The returned answers replace reports that are wrong or missing."""

    class Shifted(Executor):
        def execute(self, kind: str, requests: Any, report: Any) -> list[Outcome]:
            report([1], ["a"])
            return ["a", "b"]

    again = [instance("a"), instance("b")]
    with AnswerStore(tmp_path / "s", "m") as store:
        answer(Shifted(), [instance("a"), instance("b")], store)
    with AnswerStore(tmp_path / "s", "m") as store:
        assert answer(Echo(), again, store).sent == 0
    assert [request.resps for request in again] == [["a"], ["b"]]
