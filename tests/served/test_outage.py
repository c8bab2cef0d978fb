"""Tests what is logged when a server stops answering, and when it answers again."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest

from lm_eval.api.instance import Failure
from lm_eval.models.served import outage
from lm_eval.models.served import stream as stream_module
from lm_eval.models.served.exchange import Exchange
from lm_eval.models.served.outage import OutageLog, Waiting
from lm_eval.models.served.retry import RetryPolicy
from lm_eval.models.served.transport import Reply, TimedOutError, UnreachableError
from tests.served.stub_transport import URL, StubTransport, error, exchanges, results_of

Log = pytest.LogCaptureFixture
pytestmark = pytest.mark.slow

POLICY = RetryPolicy(attempts=100, deadline=100.0, patience=200.0, base=0.02, longest=0.05)
REFUSED = UnreachableError("ClientConnectorError: Connection refused")


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, caplog: Log) -> Iterator[None]:
    monkeypatch.setattr(outage, "SILENT_SECONDS", 0.2)
    monkeypatch.setattr(outage, "SLOWEST_FACTOR", 0.0)
    monkeypatch.setattr(outage, "CHECK_SECONDS", 0.02)
    monkeypatch.setattr(stream_module, "CHECK_SECONDS", 0.02)
    with caplog.at_level(logging.INFO):
        yield


def away_between(first: float, last: float, fault: Exception | Reply | float) -> StubTransport:
    """Returns a server that answers, is away for a while, and answers again.

    It is away between two moments, in seconds from now: `fault` is raised or returned then; a
    number are the seconds for which requests hang.
    """
    began = time.monotonic()

    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(0.005)
        if first <= time.monotonic() - began < last:
            if isinstance(fault, Exception):
                raise fault
            if isinstance(fault, Reply):
                return fault
            await asyncio.sleep(fault)
        return number

    return StubTransport(answer)


def messages(caplog: Log) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_refused_connection_is_logged_at_once_and_its_end_too(caplog: Log) -> None:
    before = datetime.now().replace(microsecond=0)
    stub = away_between(0.1, 0.4, REFUSED)
    found = results_of(stub, exchanges(200), POLICY, max_concurrent=4)
    assert found == {n: n for n in range(200)}
    away, back = messages(caplog)
    assert away.startswith(f"{URL} cannot be reached (ClientConnectorError: Connection refused). ")
    assert re.search(r"\b\d+ requests? (is|are) waiting for it", away)
    assert "(deadline=200)" in away
    clock = re.search(r"until (\d\d:\d\d:\d\d) ", away)
    assert clock is not None
    # The run ends 200 seconds after the last reply.
    expected = [(before + timedelta(seconds=200 + n)).strftime("%H:%M:%S") for n in range(4)]
    assert clock[1] in expected
    assert back.startswith(f"{URL} answers again, after ")
    times = [r.created for r in caplog.records if r.levelno >= logging.WARNING]
    assert times[1] - times[0] > 0.1  # not only when it was over


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (0.5, ""),
        (TimedOutError("no reply within 1 s"), " (no reply within 1 s)"),
        (error(503, "loading"), " (status 503: loading)"),
    ],
)
def test_a_server_that_is_silent_is_logged_once(
    fault: Exception | Reply | float, reason: str, caplog: Log
) -> None:
    stub = away_between(0.1, 0.6, fault)
    assert len(results_of(stub, exchanges(200), POLICY, max_concurrent=4)) == 200
    away, back = messages(caplog)
    assert re.match(re.escape(URL) + r" has not answered for \d+ s" + re.escape(reason), away)
    assert "waiting for it, the oldest until " in away
    assert "(deadline=100)" in away
    assert "answers again" in back


def test_every_outage_is_logged_unless_it_follows_another_at_once(caplog: Log) -> None:
    log, waiting = OutageLog(0.0, 100.0, 200.0), Waiting(URL, 1, 0.0, "refused")
    log.unreachable(1.0, 0.5, waiting)
    log.unreachable(1.1, 0.5, waiting)
    log.answered(URL, 1.2, 2.0)
    log.unreachable(2.1, 2.0, waiting)  # 0.1 s after the first outage
    log.answered(URL, 2.2, 2.3)
    log.unreachable(3.0, 2.3, waiting)
    log.answered(URL, 3.1, 9.0)
    kinds = ["cannot be reached" in one for one in messages(caplog)]
    assert kinds == [True, False, True, False]
    assert messages(caplog)[3].endswith("after 7 s.")  # since the last answer


def test_single_connections_that_fail_are_no_outage(caplog: Log) -> None:
    async def answer(number: Any, attempt: int) -> Any:
        if number % 8 == 7 and attempt == 1:
            await asyncio.sleep(0.02)
            raise REFUSED
        await asyncio.sleep(0.005)
        return number

    assert len(results_of(StubTransport(answer), exchanges(200), POLICY)) == 200
    assert messages(caplog) == []


def test_slow_answers_are_no_outage(monkeypatch: pytest.MonkeyPatch, caplog: Log) -> None:
    monkeypatch.setattr(outage, "SLOWEST_FACTOR", 3.0)

    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(0.3)
        return number

    assert len(results_of(StubTransport(answer), exchanges(3), POLICY, max_concurrent=1)) == 3
    assert messages(caplog) == []


def test_a_slow_source_of_requests_is_no_outage(caplog: Log) -> None:
    async def answer(number: Any, attempt: int) -> Any:
        await asyncio.sleep(0.05)
        return number

    def slow() -> Iterator[Exchange]:
        for exchange in exchanges(8):
            if exchange.tag > 5:
                time.sleep(0.4)  # tokenizing, for example: nothing is read meanwhile
            yield exchange

    assert len(results_of(StubTransport(answer), slow(), POLICY, max_concurrent=2)) == 8
    assert messages(caplog) == []


def test_a_request_that_waits_alone_is_an_outage_too(caplog: Log) -> None:
    def answer(number: Any, attempt: int) -> Any:
        return error(429, "slow", Retry_After="0.4") if number == 0 and attempt == 1 else number

    assert results_of(StubTransport(answer), exchanges(5), POLICY)[0] == 0
    away, back = messages(caplog)
    assert "has not answered for" in away
    assert "(status 429: slow). 1 request is waiting for it" in away
    assert "answers again" in back


def test_a_key_in_the_address_is_not_logged(caplog: Log) -> None:
    stub = away_between(0.05, 0.2, UnreachableError("no way to sk-secret"))
    sent = [Exchange(f"{URL}?key=sk-secret", lambda n=n: n, lambda r: r, n) for n in range(80)]
    results_of(stub, sent, POLICY, max_concurrent=4, hide=["sk-secret"])
    assert len(messages(caplog)) == 2
    assert "sk-secret" not in caplog.text


def test_a_server_that_does_not_come_back_fails_the_requests_after_the_warning(caplog: Log) -> None:
    stub = away_between(0.05, 60, error(503, "loading"))
    policy = RetryPolicy(attempts=100, deadline=0.5, patience=200, base=0.02, longest=0.05)
    found = results_of(stub, exchanges(40), policy, max_concurrent=4)
    assert isinstance(found[39], Failure)
    (away,) = messages(caplog)
    assert "A request that has no answer by its deadline has failed." in away
