"""Tests how many requests are in flight, with a simulated clock and a simulated server."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from lm_eval.models.served.limit import MAXIMUM, START, ConcurrencyLimit


@dataclass
class SimulatedServer:
    """A server with a number of slots, each of which answers one request after the other.

    Attributes:
        slots: how many requests are answered at the same time.
        seconds: how long an answer takes, given the number of requests at the server.
        room: how many requests may be at the server; further ones are refused with status 429.
        jitter: by which share the time of an answer varies.
    """

    slots: int
    seconds: Callable[[int], float] = lambda present: 0.02
    room: int = 1 << 30
    jitter: float = 0.1
    rng: random.Random = field(default_factory=lambda: random.Random(0))


@dataclass
class Course:
    """What happened: the limit, the replies per second, and refusals, by time."""

    limits: list[tuple[float, int]] = field(default_factory=list)
    replies: list[float] = field(default_factory=list)
    refusals: int = 0

    def typical_limit(self, begin: float, end: float) -> float:
        """Returns the mean limit between two moments, weighted by replies."""
        some = [limit for now, limit in self.limits if begin <= now < end]
        return sum(some) / len(some)

    def throughput(self, begin: float, end: float) -> float:
        """Returns the replies per second between two moments."""
        return sum(begin <= now < end for now in self.replies) / (end - begin)


def simulate(limit: ConcurrencyLimit, server: SimulatedServer, until: float) -> Course:
    """Keeps as many requests in flight as the limit allows, for some simulated seconds."""
    now, flying, course = 0.0, 0, Course()
    queue: deque[float] = deque()  # requests at the server without a slot, by the time sent
    events: list[tuple[float, int, str, float]] = []  # time, number, kind, time sent
    busy = number = 0
    while now < until:
        while flying < limit.limit:
            flying += 1
            number += 1
            if busy + len(queue) >= server.room:
                heapq.heappush(events, (now + 0.001, number, "refused", now))
            else:
                queue.append(now)
        while queue and busy < server.slots:
            busy += 1
            number += 1
            takes = server.seconds(busy + len(queue))
            takes *= 1 + server.jitter * (2 * server.rng.random() - 1)
            heapq.heappush(events, (now + takes, number, "answered", queue.popleft()))
        now, _, kind, sent = heapq.heappop(events)
        flying -= 1
        if kind == "answered":
            busy -= 1
            limit.replied(now)
            course.replies.append(now)
        else:
            limit.overloaded(sent, now)
            course.refusals += 1
        course.limits.append((now, limit.limit))
    return course


# -- growth ------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [1, 4, 16, 64, 200, 500])
@pytest.mark.parametrize("seconds", [0.02, 0.3])
def test_throughput_ends_close_to_the_best(slots: int, seconds: float) -> None:
    server = SimulatedServer(slots, lambda present: seconds)
    course = simulate(ConcurrencyLimit(), server, 20.0)
    best = min(slots, MAXIMUM) / seconds
    assert course.throughput(10.0, 20.0) > 0.9 * best


@pytest.mark.parametrize("slots", [64, 200])
def test_the_limit_ends_within_a_factor_of_two_of_the_capacity(slots: int) -> None:
    course = simulate(ConcurrencyLimit(), SimulatedServer(slots), 14.0)
    assert slots / 2 <= course.typical_limit(10.0, 14.0) <= 2 * slots


def test_it_grows_at_once_while_throughput_grows() -> None:
    course = simulate(ConcurrencyLimit(), SimulatedServer(256), 3.0)
    assert course.throughput(1.5, 3.0) > 0.5 * 256 / 0.02


def test_one_slow_moment_does_not_end_the_growth() -> None:
    def run(slow: float) -> float:
        limit, clock = ConcurrencyLimit(), 0.0
        for number in range(60):  # rounds of 0.1 seconds, of which one is slow
            pace = limit.limit * (slow if number == 2 else 1.0)
            for _ in range(int(5 * pace) + 1):
                clock += 0.1 / (5 * pace)
                limit.replied(clock)
        return limit.limit

    assert run(slow=1.0) == run(slow=0.3) == MAXIMUM


def test_it_does_not_grow_when_throughput_does_not() -> None:
    course = simulate(ConcurrencyLimit(), SimulatedServer(8), 30.0)
    assert max(limit for _, limit in course.limits) <= 2 * START


def test_a_server_that_gets_slower_under_load_is_not_loaded_more() -> None:
    def seconds(present: int) -> float:
        return 0.02 * max(1.0, (present / 32) ** 2)

    course = simulate(ConcurrencyLimit(), SimulatedServer(1000, seconds), 20.0)
    assert course.throughput(10.0, 20.0) > 0.5 * 32 / 0.02
    assert course.typical_limit(10.0, 20.0) <= 64


@pytest.mark.parametrize("maximum", [1, 3, 16, 100])
def test_it_never_exceeds_the_users_number(maximum: int) -> None:
    course = simulate(ConcurrencyLimit(maximum), SimulatedServer(1000), 5.0)
    assert max(limit for _, limit in course.limits) == maximum
    assert ConcurrencyLimit(maximum).limit == min(START, maximum)


def test_without_a_number_it_stays_below_the_maximum() -> None:
    course = simulate(ConcurrencyLimit(), SimulatedServer(10_000), 5.0)
    assert max(limit for _, limit in course.limits) == MAXIMUM


# -- overload ----------------------------------------------------------------------------------


def test_requests_that_are_refused_together_halve_it_once() -> None:
    limit = ConcurrencyLimit(64, start=64)
    for _ in range(64):
        limit.overloaded(sent=1.0, now=2.0)
    assert limit.limit == 32
    limit.overloaded(sent=1.5, now=3.0)  # was sent before the halving
    assert limit.limit == 32
    limit.overloaded(sent=2.5, now=3.5)
    assert limit.limit == 16


def test_it_never_falls_below_one() -> None:
    limit = ConcurrencyLimit(4)
    for moment in range(10):
        limit.overloaded(sent=float(moment), now=moment + 0.5)
    assert limit.limit == 1


@pytest.mark.parametrize("room", [1, 8, 40, 150])
def test_a_server_that_refuses_too_many_requests_is_used_well(room: int) -> None:
    course = simulate(ConcurrencyLimit(), SimulatedServer(room, room=room), 40.0)
    assert course.throughput(10.0, 40.0) > 0.8 * room / 0.02
    assert course.refusals < 0.02 * len(course.replies)


def test_after_an_overload_it_returns_to_just_below_and_waits_there() -> None:
    limit = ConcurrencyLimit(start=64)
    limit.overloaded(sent=-1.0, now=0.0)
    assert limit.limit == 32
    course = simulate(limit, SimulatedServer(1000), 14.0)
    assert max(limit for _, limit in course.limits) == 63
    assert course.typical_limit(10.0, 14.0) == 63
    simulate(limit, SimulatedServer(1000), 20.0)
    assert limit.limit > 64


def test_after_a_storm_of_refusals_it_grows_again() -> None:
    limit = ConcurrencyLimit(start=256)
    for moment in range(5):
        limit.overloaded(sent=moment - 5.0, now=moment - 4.5)
    assert limit.limit == 8
    course = simulate(limit, SimulatedServer(256), 40.0)
    assert course.throughput(30.0, 40.0) > 0.8 * 256 / 0.02
