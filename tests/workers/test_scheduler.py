"""Tests how requests are given to workers, in simulated time."""

from __future__ import annotations

import itertools
import logging
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pytest

from lm_eval.api.instance import Failure, Instance
from lm_eval.api.usage import Usage
from lm_eval.engine.workers.assignments import Counts
from lm_eval.engine.workers.crew import Crew, Lost
from lm_eval.engine.workers.messages import Call, Finished, Result
from lm_eval.engine.workers.portions import MAX_REQUESTS, WINDOW, Backlog
from lm_eval.engine.workers.scheduler import IN_FLIGHT, Scheduler, _Run
from lm_eval.errors import ModelError
from tests.workers.fake_pool import FakePool, request


def requests(count: int) -> list[Instance]:
    return [request(f"text {i:06}", number=i) for i in range(count)]


def answered(
    pool: FakePool, asked: Iterable[Instance], workers: int | None, **settings: Any
) -> tuple[dict[int, Any], float, Counts]:
    """Returns the outcomes by position, the time that they took, and the counts."""
    crew = Crew(pool, workers, **settings)
    crew.start()
    outcomes: dict[int, Any] = {}
    began = pool.now()
    scheduler = Scheduler(crew)

    def deliver(positions: Sequence[int], found: Sequence[Any]) -> None:
        outcomes.update(zip(positions, found, strict=True))

    scheduler.run("loglikelihood", asked, deliver)
    return outcomes, pool.now() - began, scheduler.counts


def is_complete(outcomes: dict[int, Any], count: int) -> bool:
    return outcomes == {i: f"text {i:06}" for i in range(count)}


@pytest.mark.parametrize("workers", [1, 2, 4, 7])
@pytest.mark.parametrize("streams", [True, False])
def test_every_request_is_answered_once_and_work_is_divided(workers: int, streams: bool) -> None:
    pool = FakePool(load_seconds=0, streams=streams)
    outcomes, seconds, counts = answered(pool, requests(2000), workers)
    assert is_complete(outcomes, 2000)
    assert seconds < 2000 / workers * 1.05
    assert counts.usage.tokens_in == 2000  # the last message of every portion is awaited
    assert set(pool.computed.values()) == {1}


def test_work_of_long_tailed_lengths_is_divided() -> None:
    draw = random.Random(5)
    lengths = [draw.paretovariate(1.3) for _ in range(3000)]
    pool = FakePool(lambda one: min(lengths[int(one.args[0][5:])], 100.0), load_seconds=0)
    _, seconds, _ = answered(pool, requests(3000), 4)
    assert sum(min(x, 100.0) for x in lengths) / 4 / seconds > 0.9


def test_fast_workers_answer_more() -> None:
    pool = FakePool(load_seconds=0, speeds=[4.0, 1.0])
    _, seconds, _ = answered(pool, requests(2000), 2)
    assert seconds < 2000 / 5 * 1.1


def test_a_worker_that_loads_late_helps() -> None:
    pool = FakePool(load_seconds=0)
    pool.room = 1
    pool.at(100.0, lambda: setattr(pool, "room", 4))
    outcomes, seconds, _ = answered(pool, requests(1000), None)
    assert is_complete(outcomes, 1000)
    assert seconds < 100 + 900 / 4 * 1.1


def test_a_straggler_is_overtaken_and_does_not_delay_the_end() -> None:
    """One of four workers becomes a thousand times slower in the middle."""
    pool = FakePool(load_seconds=0)
    pool.at(300.0, lambda: setattr(pool._workers[1], "speed", 0.001))
    outcomes, seconds, _ = answered(pool, requests(2000), 4)
    assert is_complete(outcomes, 2000)
    assert seconds < 1000
    assert pool.begun_again() < 200


def test_requests_on_which_the_model_may_hang_are_named_once_per_worker(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Request 700 takes 2,000 s; another worker tries it, too, and the rest goes on."""
    pool = FakePool(lambda one: 2000.0 if one.doc_number == 700 else 1.0, load_seconds=0)
    with caplog.at_level(logging.WARNING):
        outcomes, _, _ = answered(pool, requests(1000), 4)
    assert is_complete(outcomes, 1000)
    warnings = [record.getMessage() for record in caplog.records]
    assert 1 <= len(warnings) <= 2
    assert all("the first of task t, document 700, for 3" in x for x in warnings)
    assert "interrupt this run" in warnings[0]


def test_only_what_was_in_flight_is_asked_again_after_a_loss() -> None:
    pool = FakePool(load_seconds=5)
    for moment in (50, 101, 150, 201, 250):
        pool.at(moment, lambda: pool.kill(pool.alive()[0]))
    outcomes, _, counts = answered(pool, requests(1000), 2)
    assert is_complete(outcomes, 1000)
    assert pool.deaths == 5
    assert max(pool.computed.values()) <= 2
    assert sum(pool.computed.values()) == 1000  # answers that were sent are not lost
    assert counts.quarantined == 0


@pytest.mark.parametrize("missing", [None, (1, 4, 6)])
def test_a_repeat_keeps_its_number_when_a_worker_is_lost(missing: tuple[int, ...] | None) -> None:
    """Its random numbers depend on it: with another one, an answer that is stored would come twice.

    Either all repeats are asked for, or those that have no stored answer.
    """
    numbers = range(8) if missing is None else missing
    one = request("the text", repeats=8)
    one.set_open_repeats(missing)
    pool = FakePool(load_seconds=0)
    pool.at(2.5, lambda: pool.kill(1))  # when two are answered
    outcomes, _, _ = answered(pool, [one] * len(numbers), 1)
    assert pool.deaths == 1
    assert outcomes == {place: f"the text #{number}" for place, number in enumerate(numbers)}


def test_portions_of_repeats_keep_their_numbers() -> None:
    """Equal contexts of several requests are divided among portions."""
    asked = []
    for i in range(50):
        asked += [request(f"text {i % 3}", continuation=f" {i}", repeats=4)] * 4
    pool = FakePool(load_seconds=0)
    outcomes, _, _ = answered(pool, asked, 4)
    assert outcomes == {p: f"text {p // 4 % 3} #{p % 4}" for p in range(200)}


def test_without_streaming_at_most_the_portions_in_flight_are_repeated() -> None:
    pool = FakePool(load_seconds=5, streams=False)
    pool.at(77, lambda: pool.kill(1))
    outcomes, _, _ = answered(pool, requests(1000), 2)
    assert is_complete(outcomes, 1000)
    largest = max(len(texts) for _, texts in pool.portions)
    assert 0 < pool.begun_again() <= largest


@pytest.mark.parametrize("count", [1, 40, 900])
@pytest.mark.parametrize("workers", [1, 3])
def test_a_request_that_kills_three_workers_is_named_and_the_rest_finishes(
    count: int, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    bad = count // 2
    pool = FakePool(load_seconds=5, deadly=[f"text {bad:06}"])
    with caplog.at_level(logging.ERROR, "lm_eval"):
        outcomes, _, counts = answered(pool, requests(count), workers)
    failure = outcomes.pop(bad)
    assert isinstance(failure, Failure)
    assert "SIGKILL" in failure.reason
    assert outcomes == {i: f"text {i:06}" for i in range(count) if i != bad}
    assert pool.deaths == 3
    assert counts.quarantined == 1
    assert f"task t, document {bad} " in caplog.text


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_many_requests_that_kill_workers_are_named_and_the_rest_finishes(workers: int) -> None:
    bad = {f"text {i:06}" for i in range(20, 400, 40)}
    pool = FakePool(load_seconds=5, deadly=sorted(bad))
    outcomes, _, counts = answered(pool, requests(400), workers)
    failed = {f"text {i:06}" for i, one in outcomes.items() if isinstance(one, Failure)}
    assert len(outcomes) == 400
    assert failed == bad
    assert counts.quarantined == 10
    assert pool.deaths <= 50


@pytest.mark.parametrize("workers", [1, 3])
def test_requests_that_kill_workers_are_named_though_a_resumed_run_asks_no_others(
    workers: int,
) -> None:
    pool = FakePool(load_seconds=5, deadly=[f"text {i:06}" for i in range(4)])
    outcomes, _, counts = answered(pool, requests(4), workers)
    assert all(isinstance(outcomes[i], Failure) for i in range(4))
    assert counts.quarantined == 4


def test_a_worker_with_answers_is_replaced_however_often_it_ends() -> None:
    """It never finishes a portion, but answers a part of each."""
    pool = FakePool(load_seconds=1)

    def kill_again() -> None:
        for number in pool.alive():
            pool.kill(number)
        pool.at(12, kill_again)

    pool.at(12, kill_again)
    outcomes, _, _ = answered(pool, requests(2000), 1)
    assert len(outcomes) == 2000
    assert pool.deaths > 100


def test_a_portion_that_is_given_to_others_is_not_asked_twice_when_its_worker_is_lost() -> None:
    """The worker has been told to leave it out, and ends before it confirms that."""
    pool = FakePool(load_seconds=0)
    crew = Crew(pool, 1)
    crew.start()
    run = _Run(crew, {}, Counts(), "loglikelihood", lambda *_: None, itertools.count(1))
    run._backlog = Backlog(requests(64))
    run._assign()
    (own,) = run._open.values()
    first = next(iter(own))
    run._take_back(1)
    size = len(own[first].portion)
    run._handle(crew.workers[0], Finished(first, range(size), ["x"] * size, Usage()))
    run._handle(crew.workers[0], Lost("was killed by SIGKILL", innocent=False))
    again = []
    while (portion := run._backlog.take(1)) is not None:
        again += [place for place in portion.positions if portion.is_returned]
        assert not portion.strikes
    assert len(again) == len(set(again)) > 0


def test_a_machine_that_is_lost_accuses_no_request() -> None:
    pool = FakePool(load_seconds=1)
    for moment in range(5, 200, 5):
        pool.at(moment, lambda: pool.kill(pool.alive()[0], innocent=True))
    outcomes, _, counts = answered(pool, requests(100), 1)
    assert is_complete(outcomes, 100)
    assert counts.quarantined == 0


def test_an_exception_of_the_model_is_traced_to_its_request() -> None:
    pool = FakePool(load_seconds=0, faulty=["text 000123"])
    outcomes, _, _ = answered(pool, requests(500), 2)
    assert outcomes.pop(123) == Failure("given up after 3 attempts: the model failed: a fault")
    assert len(outcomes) == 499
    assert pool.deaths == 0


def test_a_model_that_fails_on_everything_ends_the_run_at_once() -> None:
    pool = FakePool(load_seconds=0, faulty=[f"text {i:06}" for i in range(500)])
    with pytest.raises(ModelError, match=r"^a fault$"):
        answered(pool, requests(500), 4)
    assert len(pool.portions) <= 8


def test_a_cluster_that_shrinks_to_nothing_and_grows_again_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pool = FakePool(load_seconds=1, room=2)

    def shrink() -> None:
        pool.room = 0
        for number in pool.alive():
            pool.kill(number, innocent=True)

    pool.at(100, shrink)
    pool.at(1000, lambda: pool.grow(2))
    outcomes, seconds, _ = answered(pool, requests(1000), None)
    assert is_complete(outcomes, 1000)
    assert 1300 < seconds < 1500
    assert "No worker has a place to run" in caplog.text


def test_a_worker_that_cannot_be_placed_does_not_block() -> None:
    pool = FakePool(load_seconds=1, room=None)
    pool.at(50, lambda: setattr(pool, "room", 0))  # no new worker gets a place
    pool.at(51, lambda: pool.kill(1, innocent=True))
    outcomes, seconds, _ = answered(pool, requests(400), 2)
    assert is_complete(outcomes, 400)
    assert seconds < 400


def test_a_call_loses_no_message_of_other_workers() -> None:
    class Answering(FakePool):
        def send(self, worker: int, message: Any) -> None:
            if isinstance(message, Call):
                self._out.append((worker, Result(message.number, "a value")))
                self.kill(2)

    crew = Crew(Answering(load_seconds=0), 2)
    crew.start()
    while len(crew.ready) < 2:
        list(crew.events(1))
    assert crew.call("method") == "a value"
    ((worker, event),) = crew.events(1)
    assert (worker.name, event) == ("worker 2", Lost("was killed by SIGKILL", innocent=False))


def test_a_place_is_left_when_one_was_given_up_and_the_cluster_shrinks() -> None:
    pool = FakePool(load_seconds=1, room=2)
    crew = Crew(pool, None, max_restarts=0)
    crew.start()
    pool.kill(1)
    list(crew.events(1))
    assert len(crew.workers) == 1
    pool.room = 1
    pool.kill(2, innocent=True)
    for _ in range(5):
        list(crew.events(1))
    assert len(crew.ready) == 1


def test_a_worker_that_loads_the_model_is_kept_when_the_cluster_shrinks() -> None:
    pool = FakePool(load_seconds=1, room=3)
    crew = Crew(pool, None)
    crew.start()
    while len(crew.ready) < 3:
        list(crew.events(1))
    pool.kill(1)
    list(crew.events(0.5))
    list(crew.events(0.1))  # the first place has a worker again, which loads the model
    assert 4 in pool.alive()
    pool.room = 2
    pool.kill(3, innocent=True)
    for _ in range(5):
        list(crew.events(1))
    assert sorted(worker.number for worker in crew.ready) == [2, 4]


def test_only_so_many_workers_are_started_as_may_load_the_model_at_a_time() -> None:
    class Cautious(FakePool):
        most = 0

        def most_loading(self) -> int:
            return 3

        def start(self) -> int:
            number = super().start()
            self.most = max(self.most, len(self.alive()) - len(crew.ready))
            return number

    pool = Cautious(load_seconds=10)
    crew = Crew(pool, 10)
    crew.start()
    while len(crew.ready) < 10:
        list(crew.events(1))
    assert pool.most == 3
    assert pool.now() >= 40  # ten workers, three at a time


def test_far_more_workers_than_requests_are_not_all_started() -> None:
    pool = FakePool(load_seconds=1)
    pool.most_loading = lambda: 4  # type: ignore[method-assign]
    outcomes, _, _ = answered(pool, requests(20), 5000)
    assert is_complete(outcomes, 20)
    assert len(pool.alive()) < 200


def test_workers_that_end_again_and_again_are_given_up() -> None:
    pool = FakePool(load_seconds=1, deadly=[f"text {i:06}" for i in range(300)])
    with pytest.raises(ModelError, match=r"all workers have ended.*run the same command again"):
        answered(pool, requests(300), 2, max_restarts=2)
    assert pool.deaths <= 6


def test_a_worker_with_another_model_ends_the_run() -> None:
    pool = FakePool(load_seconds=1)
    pool.at(20, lambda: setattr(pool, "identity", "another"))
    pool.at(21, lambda: pool.kill(1))
    with pytest.raises(ModelError, match="worker 1 on h3 has loaded another model"):
        answered(pool, requests(300), 2)


def test_a_list_is_read_in_windows() -> None:
    most = 0
    outcomes = 0
    read = 0

    def stream() -> Iterator[Instance]:
        nonlocal most, read
        for one in requests(3 * WINDOW):
            read += 1
            most = max(most, read - outcomes)
            yield one

    pool = FakePool(lambda one: 0.01, load_seconds=0, streams=False)
    crew = Crew(pool, 2)
    crew.start()

    def count(positions: Any, found: Any) -> None:
        nonlocal outcomes
        outcomes += len(positions)

    Scheduler(crew).run("loglikelihood", stream(), count)
    assert outcomes == 3 * WINDOW
    assert most <= 1.5 * WINDOW + 2 * IN_FLIGHT * MAX_REQUESTS


def test_portions_keep_common_prefixes_and_repeats_together() -> None:
    """Questions of one passage come from different places; each is asked three times."""
    asked = []
    for i in range(600):
        one = request(f"passage {i % 20:02}. question {i}")
        asked += [one] * 3
    backlog = Backlog(asked)
    owners: dict[str, set[int]] = {}
    seen = number = 0
    while (portion := backlog.take(4)) is not None:
        seen += len(portion)
        number += 1
        assert portion.requests[0] is portion.requests[2]
        assert len(portion) % 3 == 0
        for one in portion.requests:
            owners.setdefault(one.args[0][:10], set()).add(number)
    assert seen == len(asked)
    # Most portions are of one passage; as long as they are large, passages are not divided.
    assert sum(map(len, owners.values())) < 1.2 * number
    assert [len(owners[f"passage {i:02}"]) for i in range(6)] == [1] * 6


def test_portions_are_whole_batches_if_the_batch_size_is_known() -> None:
    backlog = Backlog([request(f"text {i // 4}") for i in range(4000)], 32)
    sizes = []
    while (portion := backlog.take(4)) is not None:
        sizes.append(len(portion))
    assert sum(sizes) == 4000
    assert all(size % 32 == 0 for size in sizes)
    assert max(sizes) >= 224 > min(sizes)
