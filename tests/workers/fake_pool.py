"""A pool of simulated workers in simulated time, and a model that tests control."""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.usage import Usage
from lm_eval.engine.workers.messages import (
    Answers,
    Cancel,
    Ended,
    Finished,
    Message,
    ModelFacts,
    Placed,
    Raised,
    Ready,
    Work,
)
from lm_eval.engine.workers.pool import WorkerPool
from lm_eval.engine.workers.same_model import installed_versions
from lm_eval.models.conventions import repeat_numbers


def request(
    text: str, continuation: str = " x", task: str = "t", number: int = 0, repeats: int = 1
) -> Instance:
    return Instance("loglikelihood", {}, (text, continuation), 0, (task, number, repeats))


def answers_to(requests: Sequence[Instance]) -> list[str]:
    """Returns the text of each request; if it has repeats, with the number of the repeat."""
    found: list[str] = []
    for _, group in itertools.groupby(requests, key=id):
        same = list(group)
        text = same[0].args[0]
        if same[0].repeats == 1:
            found.append(text)
        else:
            found += [f"{text} #{number}" for number in repeat_numbers(same)]
    return found


@dataclass
class Simulated:
    """One worker: what it has, and when it is free."""

    queue: list[Work] = field(default_factory=list)
    cancelled: set[int] = field(default_factory=set)
    is_busy: bool = False
    is_gone: bool = False
    speed: float = 1.0


class FakePool(WorkerPool):
    """Workers that take `seconds(request)` for each request, in a time that `poll` advances.

    An answer is that of `answers_to`. `deadly` requests end the worker, `faulty` ones make its
    model raise an exception.
    """

    def __init__(
        self,
        seconds: Callable[[Instance], float] = lambda one: 1.0,
        load_seconds: float = 10.0,
        deadly: Sequence[str] = (),
        faulty: Sequence[str] = (),
        streams: bool = True,
        room: int | None = None,
        speeds: Sequence[float] = (),
    ) -> None:
        self._seconds, self._load = seconds, load_seconds
        self._deadly, self._faulty, self._streams = set(deadly), set(faulty), streams
        self._speeds, self.room = list(speeds), room
        self._time = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._ties = itertools.count()
        self._out: list[tuple[int, Message]] = []
        self._workers: dict[int, Simulated] = {}
        self._numbers = itertools.count(1)
        self.computed: Counter[str] = Counter()
        self.portions: list[tuple[int, list[str]]] = []
        self.deaths = 0
        self.closed = False
        self.identity = "one"

    def now(self) -> float:
        return self._time

    def at(self, delay: float, action: Callable[[], None]) -> None:
        """Runs `action` when `delay` seconds have passed."""
        heapq.heappush(self._events, (self._time + delay, next(self._ties), action))

    def target(self) -> int | None:
        return self.room

    def start(self) -> int:
        number = next(self._numbers)
        speed = self._speeds.pop(0) if self._speeds else 1.0
        self._workers[number] = Simulated(speed=speed)
        if self.room is None or self.room > 0:
            self._place(number)
        return number

    def _place(self, number: int) -> None:
        facts = ModelFacts(self.identity, "Fake", installed_versions(), host=f"h{number}")
        self._out.append((number, Placed()))
        self.at(self._load, lambda: self._emit(number, Ready(facts)))

    def grow(self, room: int) -> None:
        """Gives the cluster room for so many workers, and a place to all that wait."""
        before, self.room = self.room, room
        if not before:
            for number, worker in self._workers.items():
                if not worker.is_gone:
                    self._place(number)

    def kill(self, number: int, innocent: bool = False) -> None:
        """Ends a worker, like `kill -9`."""
        if number in self._workers and not self._workers[number].is_gone:
            self.deaths += 1
            self._workers[number].is_gone = True
            self._out.append((number, Ended("was killed by SIGKILL", innocent)))

    def begun_again(self) -> int:
        """Returns how many requests a worker has begun with although another one had before."""
        begun = Counter(text for _, texts in self.portions for text in texts)
        return begun.total() - len(begun)

    def alive(self) -> list[int]:
        return [number for number, one in self._workers.items() if not one.is_gone]

    def _emit(self, number: int, message: Message) -> None:
        if not self._workers[number].is_gone:
            self._out.append((number, message))

    def send(self, worker: int, message: Any) -> None:
        one = self._workers[worker]
        if isinstance(message, Cancel):
            one.cancelled.add(message.number)
        elif isinstance(message, Work):
            one.queue.append(message)
            self._begin(worker)

    def _begin(self, number: int) -> None:
        one = self._workers[number]
        if one.is_busy or one.is_gone or not one.queue:
            return
        work = one.queue.pop(0)
        if work.number in one.cancelled:
            self._emit(number, Finished(work.number, (), (), Usage(), cancelled=True))
            self._begin(number)
            return
        one.is_busy = True
        texts = []
        elapsed = 0.0
        asked = work.requests.instances()
        self.portions.append((number, [r.args[0] for r in asked]))
        answers = answers_to(asked)
        for place, request in enumerate(asked):
            text = request.args[0]
            elapsed += self._seconds(request) / one.speed
            if text in self._deadly:
                self.at(elapsed, lambda: self.kill(number))
                return
            if text in self._faulty:
                self.at(elapsed, lambda: self._raise(number, work.number))
                return
            texts.append(answers[place])
            if self._streams:
                self.at(elapsed, self._answer(number, work.number, place, answers[place]))
        self.at(elapsed, lambda: self._end(number, work, texts, elapsed))

    def _raise(self, number: int, work: int) -> None:
        self._emit(number, Raised(work, "a fault", False))
        self._workers[number].is_busy = False
        self._begin(number)

    def _answer(self, number: int, work: int, place: int, text: str) -> Callable[[], None]:
        def send() -> None:
            if not self._workers[number].is_gone:
                self.computed[text] += 1
            self._emit(number, Answers(work, [place], [text]))

        return send

    def _end(self, number: int, work: Work, texts: list[str], elapsed: float) -> None:
        if self._workers[number].is_gone:
            return
        late = [] if self._streams else list(range(len(texts)))
        if not self._streams:
            self.computed.update(texts)
        usage = Usage(tokens_in=len(texts))
        outcomes = [texts[i] for i in late]
        self._emit(number, Finished(work.number, late, outcomes, usage, seconds=elapsed))
        self._workers[number].is_busy = False
        self._begin(number)

    def poll(self, timeout: float) -> Sequence[tuple[int, Message]]:
        until = self._time + timeout
        while not self._out and self._events and self._events[0][0] <= until:
            self._time, _, action = heapq.heappop(self._events)
            action()
        if not self._out:
            self._time = until
        found, self._out = self._out, []
        return found

    def stop(self, worker: int) -> None:
        self._workers[worker].is_gone = True

    def close(self) -> None:
        self.closed = True
