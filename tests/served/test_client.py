"""Tests the client for many requests: every request gets one result, whatever the server does."""

from __future__ import annotations

import asyncio
import json
import logging
import threading
import time
import tracemalloc
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from lm_eval.api.instance import Failure
from lm_eval.errors import ModelError
from lm_eval.models.served import stream as stream_module
from lm_eval.models.served.exchange import BadReplyError, Exchange, RefusedError
from lm_eval.models.served.limit import ConcurrencyLimit
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.served.transport import (
    BrokenReplyError,
    Reply,
    TimedOutError,
    UnreachableError,
)
from tests.served.stub_transport import (
    URL,
    StubTransport,
    client,
    error,
    exchanges,
    results_of,
)


def http_threads() -> list[str]:
    """Returns the names of the client's threads that are still alive."""
    return [thread.name for thread in threading.enumerate() if thread.name == "lm_eval-http"]


@pytest.fixture(autouse=True)
def _no_thread_stays_behind() -> Iterator[None]:
    yield
    assert http_threads() == []


def same(number: Any, attempt: int) -> Any:
    """Answers every request with its own body."""
    return number


# -- every request gets exactly one result -----------------------------------------------------


def test_every_request_gets_its_own_answer() -> None:
    assert results_of(StubTransport(same), exchanges(500)) == {n: n for n in range(500)}


def test_no_request_gives_no_result() -> None:
    assert results_of(StubTransport(same), exchanges(0)) == {}


@pytest.mark.parametrize("at_once", [None, 1, 2, 64])
def test_requests_that_are_all_refused_in_the_same_moment_are_all_sent_again(
    at_once: int | None,
) -> None:
    def answer(number: Any, attempt: int) -> Any:
        return error(429) if attempt == 1 else number

    found = results_of(StubTransport(answer), exchanges(100), max_concurrent=at_once)
    assert found == {n: n for n in range(100)}


FAULTS = {
    "status 429": error(429),
    "status 500": error(500),
    "status 503": error(503),
    "reset": BrokenReplyError("ClientOSError: Connection reset by peer"),
    "timeout": TimedOutError("no reply within 1 s"),
    "half-written JSON": Reply(200, b'{"choices": [{"te'),
    "not JSON": Reply(200, b"<html>Welcome</html>"),
    "invalid characters": Reply(200, b"\xff\xfe"),
    "empty": Reply(200, b""),
    "unreachable": UnreachableError("ClientConnectorError: Connection refused"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_requests_that_fail_for_a_while_are_answered_in_the_end(fault: str) -> None:
    def answer(number: Any, attempt: int) -> Any:
        if attempt <= number % 3:
            kind = FAULTS[fault]
            if isinstance(kind, Exception):
                raise kind
            return kind
        return number

    stub = StubTransport(answer)
    assert results_of(stub, exchanges(60)) == {n: n for n in range(60)}
    assert stub.sent == {str(n): n % 3 + 1 for n in range(60)}


def test_a_mix_of_all_faults_loses_and_doubles_nothing() -> None:
    def answer(number: Any, attempt: int) -> Any:
        kinds = list(FAULTS.values())
        if (number * 7 + attempt * 3) % 5 < 2:
            kind = kinds[(number + attempt) % len(kinds)]
            if isinstance(kind, Exception):
                raise kind
            return kind
        return number

    assert results_of(StubTransport(answer), exchanges(400)) == {n: n for n in range(400)}


def test_a_request_is_given_up_after_its_attempts_and_named_with_the_last_reason() -> None:
    def answer(number: Any, attempt: int) -> Any:
        return error(500, "out of memory") if number == 7 else number

    stub = StubTransport(answer)
    found = results_of(stub, exchanges(20))
    assert found.pop(7) == Failure("status 500: out of memory (6 attempts)")
    assert found == {n: n for n in range(20) if n != 7}
    assert stub.sent["7"] == 6


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_refused_request_is_not_sent_again(status: int) -> None:
    def answer(number: Any, attempt: int) -> Any:
        return error(status, "too long") if number == 7 else number

    stub = StubTransport(answer)
    found = results_of(stub, exchanges(20))
    assert found[7] == Failure(f"status {status}: too long")
    assert stub.sent["7"] == 1


def test_what_reading_a_reply_raises_decides_whether_it_is_retried() -> None:
    def read(reply: Any) -> Any:
        if reply == 1:
            raise RefusedError("content filter")
        if reply == 2:
            raise BadReplyError("no choices")
        if reply == 3:
            return reply["choices"]
        return reply

    sent = [Exchange(URL, lambda n=n: n, read, n) for n in range(5)]
    stub = StubTransport(same)
    found = results_of(stub, sent)
    assert found[0] == 0
    assert found[4] == 4
    assert found[1] == Failure("content filter")
    assert found[2] == Failure("unusable reply (BadReplyError: no choices) (6 attempts)")
    assert found[3].reason.startswith("unusable reply (TypeError:")
    assert stub.sent == {"0": 1, "1": 1, "2": 6, "3": 6, "4": 1}


@pytest.mark.parametrize(
    "refusal",
    [
        error(401, "bad key"),
        error(404, "no such model"),
        Reply(429, b'{"error": {"message": "no credit", "code": "insufficient_quota"}}'),
    ],
)
def test_an_error_that_concerns_all_requests_ends_the_run_at_once(refusal: Reply) -> None:
    stub = StubTransport(lambda number, attempt: refusal)
    with pytest.raises(ModelError, match=rf"the server refused a request: {URL}: status \d+: \w+"):
        results_of(stub, exchanges(1000))
    assert stub.sent.total() <= 16


def test_an_unexpected_error_ends_the_run_with_that_error() -> None:
    def read(reply: Any) -> Any:
        return 1 // 0

    with pytest.raises(ZeroDivisionError):
        results_of(StubTransport(same), [Exchange(URL, lambda: 1, read)])


def test_an_error_of_the_source_of_requests_is_raised() -> None:
    def source() -> Iterator[Exchange]:
        yield from exchanges(3)
        raise KeyError("documents")

    with pytest.raises(KeyError, match="documents"):
        results_of(StubTransport(same), source())


# -- waiting -----------------------------------------------------------------------------------


def test_an_hour_long_retry_after_is_named_and_delays_no_other_request() -> None:
    def answer(number: Any, attempt: int) -> Any:
        return error(429, "slow down", Retry_After="3600") if number == 3 else number

    stub, began = StubTransport(answer), time.monotonic()
    found = results_of(stub, exchanges(50), RetryPolicy(deadline=600.0))
    assert time.monotonic() - began < 5
    assert found.pop(3) == Failure(
        "status 429: slow down (the server asks to wait 3600 s, longer than the deadline of 600 s)"
    )
    assert len(found) == 49
    assert stub.sent["3"] == 1


def test_a_short_retry_after_delays_its_own_request_only() -> None:
    times: dict[int, list[float]] = {}

    def answer(number: Any, attempt: int) -> Any:
        times.setdefault(number, []).append(time.monotonic())
        return error(429, Retry_After="1") if number == 0 and attempt == 1 else number

    results_of(StubTransport(answer), exchanges(50))
    assert times[0][1] - times[0][0] >= 1
    assert max(each[-1] for n, each in times.items() if n) - times[0][0] < 1


def test_a_request_that_is_refused_as_overload_is_retried_until_its_deadline() -> None:
    stub = StubTransport(lambda number, attempt: error(429, "busy") if number == 0 else number)
    policy = RetryPolicy(attempts=2, deadline=0.3, base=0.01, longest=0.02)
    found = results_of(stub, exchanges(5), policy)
    assert found[0] == Failure("status 429: busy (no answer within 0.3 s)")
    assert stub.sent["0"] > 5  # more often than `attempts`


def test_a_server_that_stays_away_ends_the_run() -> None:
    def answer(number: Any, attempt: int) -> Any:
        raise UnreachableError("ClientConnectorError: Connection refused")

    policy = RetryPolicy(attempts=2, patience=0.2, base=0.01, longest=0.02)
    with pytest.raises(ModelError, match=r"cannot be reached \(ClientConnectorError: Connection"):
        results_of(StubTransport(answer), exchanges(5), policy)


def test_a_server_that_is_away_for_a_while_costs_no_attempts() -> None:
    began = time.monotonic()

    def answer(number: Any, attempt: int) -> Any:
        if time.monotonic() - began < 0.2:
            raise UnreachableError("ClientConnectorError: Connection refused")
        return number

    policy = RetryPolicy(attempts=2, patience=5, base=0.01, longest=0.02)
    assert len(results_of(StubTransport(answer), exchanges(30), policy)) == 30


@pytest.mark.parametrize(
    "fault", [error(503), error(429), error(502), BrokenReplyError("ClientOSError: reset")]
)
def test_a_get_request_survives_a_passing_fault(fault: Any) -> None:
    def answer(body: Any, attempt: int) -> Any:
        if attempt < 3 and isinstance(fault, Exception):
            raise fault
        return fault if attempt < 3 else "found"

    stub = StubTransport(answer)
    assert client(stub).get(URL).body == b'"found"'
    assert stub.sent.total() == 3


@pytest.mark.parametrize("status", [200, 404, 401, 500])
def test_a_get_request_is_not_repeated_for_another_status(status: int) -> None:
    stub = StubTransport(lambda body, attempt: error(status))
    assert client(stub).get(URL).status == status
    assert stub.sent.total() == 1


class RecordedLimit(ConcurrencyLimit):
    """A limit that records its values."""

    seen: ClassVar[list[int]] = []

    def overloaded(self, sent: float, now: float) -> None:
        super().overloaded(sent, now)
        RecordedLimit.seen.append(self.limit)


@pytest.mark.parametrize("headers", [{}, {"Retry_After": "0.05"}, {"retry_after_ms": "50"}])
@pytest.mark.parametrize("status", [429, 503])
def test_requests_that_are_refused_together_halve_the_limit_once_whatever_they_ask_for(
    status: int, headers: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "ConcurrencyLimit", RecordedLimit)
    RecordedLimit.seen = []

    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(0.02)
        return error(status, **headers) if number < 16 and attempt == 1 else number

    assert len(results_of(StubTransport(answer), exchanges(60))) == 60
    assert RecordedLimit.seen == [8] * 16


def test_a_retry_after_without_overload_does_not_change_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "ConcurrencyLimit", RecordedLimit)
    RecordedLimit.seen = []

    def answer(number: Any, attempt: int) -> Any:
        return error(500, Retry_After="0.05") if attempt == 1 else number

    assert len(results_of(StubTransport(answer), exchanges(40))) == 40
    assert RecordedLimit.seen == []


# -- learning from refusals --------------------------------------------------------------------


def test_requests_in_flight_while_a_parameter_is_learned_are_sent_again() -> None:
    refused: set[str] = set()

    def adapt(reply: Reply) -> bool:
        is_new = "temperature" not in refused
        refused.add("temperature")
        return is_new

    async def answer(body: Any, attempt: int) -> Any:
        await asyncio.sleep(0.01)  # many are in flight before the first refusal
        return error(400, "no temperature") if "temperature" in body else body["n"]

    def exchange(number: int) -> Exchange:
        def payload() -> dict[str, int]:
            body = {"n": number, "temperature": 0}
            return {name: value for name, value in body.items() if name not in refused}

        return Exchange(URL, payload, lambda reply: reply, number, adapt)

    stub = StubTransport(answer)
    assert results_of(stub, map(exchange, range(100))) == {n: n for n in range(100)}
    refusals = [name for name in stub.sent if "temperature" in name]
    assert len(refusals) == 16  # those in flight at the start
    assert stub.sent.total() == 116


def test_a_refusal_that_teaches_nothing_is_final() -> None:
    stub = StubTransport(lambda number, attempt: error(400, "too long"))
    found = results_of(stub, exchanges(3, adapt=lambda reply: False))
    assert set(found.values()) == {Failure("status 400: too long")}
    assert stub.sent.total() == 3


# -- concurrency and memory --------------------------------------------------------------------


@pytest.mark.parametrize("at_once", [1, 5, 40])
def test_no_more_requests_are_in_flight_than_allowed(at_once: int) -> None:
    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(0.002)
        return number

    stub = StubTransport(answer)
    results_of(stub, exchanges(200), max_concurrent=at_once)
    assert stub.most_at_once <= at_once
    assert stub.most_at_once == at_once or at_once > 16  # the limit grows from 16 on


class CountedExchange(Exchange):
    """An exchange that counts how many of its kind exist."""

    existing = most = taken = 0

    def __init__(self, number: int, size: int) -> None:
        super().__init__(URL, lambda: [number, "x" * size], lambda reply: reply[1], number)
        CountedExchange.existing += 1
        CountedExchange.taken += 1
        CountedExchange.most = max(CountedExchange.most, CountedExchange.existing)

    def __del__(self) -> None:
        CountedExchange.existing -= 1


def feed(count: int, answer: Any = same, pause: float = 0.0, **settings: Any) -> None:
    """Sends requests of 2 kB from a generator, and drops their results as they come."""
    CountedExchange.existing = CountedExchange.most = CountedExchange.taken = 0
    received = 0
    source = (CountedExchange(number, 2000) for number in range(count))
    with client(StubTransport(answer, counts=False), **settings).stream(source) as stream:
        for batch in stream:
            received += len(batch)
            batch.clear()
            time.sleep(pause)
    assert received == CountedExchange.taken == count
    assert CountedExchange.existing == 0


def test_memory_does_not_grow_with_the_number_of_requests() -> None:
    peaks = []
    for count in (500, 5000, 30_000):  # the first one for what is allocated once
        tracemalloc.start()
        feed(count)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] + 3e6


def test_a_request_is_made_only_when_it_can_be_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "BATCH_SECONDS", 0.001)
    most = []
    for count in (5000, 30_000):
        feed(count)
        most.append(CountedExchange.most)
    assert max(most) < 2500


def test_a_slow_reader_of_results_holds_requests_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream_module, "MAX_RESULTS", 100)
    feed(1000, pause=0.01, max_concurrent=16)
    # In the queue, being read, and in flight.
    assert CountedExchange.most <= (100 + 16) + (100 + 16) + 16


def test_requests_that_wait_for_a_retry_hold_new_ones_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream_module, "MAX_WAITING", 50)
    monkeypatch.setattr(stream_module, "MAX_RESULTS", 50)
    failed = set()

    def answer(body: Any, attempt: int) -> Any:
        if body[0] in failed:
            return body
        failed.add(body[0])
        return error(500)

    feed(500, answer, max_concurrent=16)
    # Waiting for a retry, in the queue of results, being read, and in flight.
    assert CountedExchange.most <= 50 + (50 + 16) + (50 + 16) + 16


# -- the end of a stream -----------------------------------------------------------------------


def test_a_stream_that_is_left_early_cancels_its_requests() -> None:
    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(0 if number < 10 else 60)
        return number

    stub, began = StubTransport(answer), time.monotonic()
    with client(stub).stream(exchanges(1000)) as stream:
        next(iter(stream))
    assert http_threads() == []
    assert stub.at_once == 0
    assert stub.opened == stub.closed == 1
    assert time.monotonic() - began < 5


def test_a_stream_that_is_closed_before_it_began_sends_nothing_for_long() -> None:
    for _ in range(20):
        stub, began = StubTransport(same), time.monotonic()
        client(stub).stream(exchanges(10**9)).close()
        assert time.monotonic() - began < 5
        assert http_threads() == []


def test_an_error_of_the_reader_ends_the_stream() -> None:
    def read_one() -> None:
        with client(StubTransport(same)).stream(exchanges(100_000)) as stream:
            for _ in stream:
                raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        read_one()
    assert http_threads() == []


def test_draining_takes_the_answers_in_flight_and_sends_nothing_more() -> None:
    async def answer(number: Any, attempt: int) -> Any:
        if number % 2:  # half of them wait for a retry
            return error(500, Retry_After="1")
        await asyncio.sleep(0.2)
        return number

    stub, found = StubTransport(answer), []
    with client(stub, max_concurrent=8).stream(exchanges(1000)) as stream:
        while stream.in_flight < 4:
            time.sleep(0.01)
        sent = stub.sent.total()
        for batch in stream.drain():
            found += batch
        assert stream.in_flight == 0
    assert stub.sent.total() <= sent + 8
    assert {exchange.tag for exchange, _ in found} == {
        int(name) for name in stub.sent if not int(name) % 2
    }


def test_draining_gives_up_on_requests_that_stay_without_a_reply() -> None:
    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(60)

    began = time.monotonic()
    with client(StubTransport(answer)).stream(exchanges(100)) as stream:
        assert list(stream.drain(seconds=0.2)) == []
    assert time.monotonic() - began < 5


def test_it_works_inside_a_running_event_loop() -> None:
    async def notebook() -> Any:
        stub = StubTransport(same)
        assert client(stub).ask(next(exchanges(1))) == 0
        assert client(stub).get(URL).body == b'"GET"'
        return results_of(stub, exchanges(20))

    assert asyncio.run(notebook()) == {n: n for n in range(20)}


# -- secrets -----------------------------------------------------------------------------------

KEY = "sk-planted/0123456789abcdef"


@pytest.mark.parametrize("written", [KEY, KEY.replace("/", "\\/"), "x" * 290 + KEY])
def test_a_key_that_the_server_repeats_is_not_shown(
    written: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    body = f'{{"error": {{"message": "bad request with key {written}"}}}}'.encode()
    seen: list[Reply] = []

    def adapt(reply: Reply) -> bool:
        seen.append(reply)
        return False

    def answer(number: Any, attempt: int) -> Any:
        if number == 0:
            return Reply(400, body)
        if number == 1:
            return Reply(500, body)
        return Reply(200, body) if number == 2 else number

    def read(reply: Any) -> Any:
        if isinstance(reply, dict):
            raise BadReplyError(f"no choices in {json.dumps(reply)[:300]}")
        return reply

    sent = list(exchanges(5, adapt=adapt))
    for exchange in sent:
        exchange.read = read
    found = results_of(StubTransport(answer), sent, hide=[KEY])
    assert [isinstance(found[n], Failure) for n in range(5)] == [True, True, True, False, False]
    shown = f"{found} {seen} {caplog.text}"
    assert "***" in shown
    assert "planted" not in shown
    assert "sk-p" not in shown


def test_a_key_in_an_answer_is_not_stored() -> None:
    found = results_of(StubTransport(lambda n, a: f"the key {KEY}"), exchanges(1), hide=[KEY])
    assert found == {0: "the key ***"}


def test_a_placeholder_in_place_of_a_key_does_not_change_answers() -> None:
    found = results_of(
        StubTransport(lambda n, a: "EMPTY and no-key-needed"),
        exchanges(1),
        hide=["EMPTY", "no-key-needed", ""],
    )
    assert found == {0: "EMPTY and no-key-needed"}
