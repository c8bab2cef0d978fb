"""Keeps the workers of a run going: starts them, checks their models, replaces those that end."""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lm_eval.engine.workers.messages import (
    Broken,
    Call,
    Ended,
    LogMessage,
    Message,
    ModelFacts,
    Placed,
    Ready,
    Result,
    SetContext,
)
from lm_eval.engine.workers.pool import WorkerPool
from lm_eval.engine.workers.same_model import check_driver, check_same
from lm_eval.errors import ConfigError, ModelError

logger = logging.getLogger(__name__)

#: How long the first worker may wait for a place, in seconds.
PLACE_SECONDS = 60.0
#: How often it is logged that no worker has a place, and how long `poll` waits at most.
WARN_SECONDS = 30.0
POLL_SECONDS = 1.0
#: A worker that ends twice in a row without an answer is replaced after this many seconds, doubled
#: each time up to the maximum.
FIRST_DELAY = 1.0
MAX_DELAY = 60.0


@dataclass(eq=False)
class Worker:
    """One place in the crew. When its worker ends, another one takes the place."""

    name: str
    number: int = 0
    """The number of the present worker in the pool; 0 if there is none."""
    is_ready: bool = False
    was_placed: bool = False
    losses: int = 0
    """How many workers have ended in this place since the last answer from it."""
    next_start: float = 0.0
    """When the next worker is started here, if there is none."""
    requests: int = 0
    """How many requests were answered here, and in how many seconds."""
    seconds: float = 0.0
    facts: ModelFacts | None = None
    failure: str = ""
    """Why the present worker cannot go on, if it has said so; it then ends by itself."""

    def occupy(self, number: int) -> None:
        """Puts the worker with this number in the pool into the place."""
        self.number = number

    def begin(self) -> None:
        """Notes that the worker has a place to run, and loads the model."""
        self.was_placed = True

    def join(self, facts: ModelFacts) -> None:
        """Notes that the worker has loaded the model."""
        self.facts, self.is_ready = facts, True

    def fail(self, reason: str) -> None:
        """Notes why the worker cannot go on."""
        self.failure = reason

    def answer(self) -> None:
        """Notes that an answer has come from here."""
        self.losses = 0

    def count(self, requests: int, seconds: float) -> None:
        """Counts the requests of a finished portion."""
        self.answer()
        self.requests += requests
        self.seconds += seconds

    def vacate(self, now: float, is_loss: bool) -> None:
        """Removes the worker from the place, and decides when the next one is started."""
        self.number, self.is_ready, self.was_placed, self.failure = 0, False, False, ""
        self.losses += is_loss
        delay = min(MAX_DELAY, FIRST_DELAY * 2 ** (self.losses - 2)) if self.losses > 1 else 0.0
        self.next_start = now + delay


@dataclass(frozen=True)
class Lost:
    """The worker of a place has ended."""

    reason: str
    innocent: bool


def _not_explained(worker: Worker) -> bool:
    return False


@dataclass
class Crew:
    """The workers of a run.

    Args:
        pool: starts the workers.
        count: the number of workers; None for as many as the pool has room for.
        max_restarts: how often in a row a worker may end without having answered anything.
    """

    pool: WorkerPool
    count: int | None
    max_restarts: int = 3
    workers: list[Worker] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._by_number: dict[int, Worker] = {}
        self._facts: ModelFacts | None = None
        self._context: SetContext | None = None
        self._numbers = itertools.count(1)
        self._names = itertools.count(1)
        self._waiting: deque[tuple[Worker, Message | Lost]] = deque()
        self._logged: set[str] = set()
        self._started_at = self._warned_at = self.pool.now()
        self._given_up = 0
        self.restarts = 0
        """How many workers have been replaced."""

    # -- starting ----------------------------------------------------------------------------------

    def start(self) -> ModelFacts:
        """Starts the workers; returns what is known of the model when the first one has loaded it.

        Raises `ModelError` if there is no place for any worker, or if none can load the model;
        `ConfigError` if the settings of the run are wrong.
        """
        self._started_at = self._warned_at = self.pool.now()
        self._fill()
        while self._facts is None:
            self._waiting.extend(self._step(POLL_SECONDS))
            waited = self.pool.now() - self._started_at
            if not any(worker.was_placed for worker in self.workers) and waited > PLACE_SECONDS:
                raise ModelError(
                    f"no worker could be started within {PLACE_SECONDS:.0f} seconds. "
                    f"{self.pool.shortage()}"
                )
        return self._facts

    def set_context(self, context: SetContext | None) -> None:
        """Passes the settings of a run to all workers, also to those that are started later."""
        self._context = context
        if context is not None:
            for worker in self.ready:
                self.pool.send(worker.number, context)

    @property
    def ready(self) -> list[Worker]:
        """The workers that have loaded the model."""
        return [worker for worker in self.workers if worker.is_ready]

    def _fill(self) -> None:
        """Starts workers in the places that have none, and adds places if there is more room.

        The others are started when these have loaded the model, if the pool limits their number.
        """
        target = self.pool.target() if self.count is None else self.count
        wanted = max(1, (target or 1) - self._given_up)
        while len(self.workers) < wanted:
            self.workers.append(Worker(f"worker {next(self._names)}"))
        surplus = max(0, len(self.workers) - wanted)  # there is no room for them any more
        for worker in [one for one in self.workers if not one.was_placed][:surplus]:
            self._remove(worker)
        now, most = self.pool.now(), self.pool.most_loading()
        loading = sum(bool(worker.number) and not worker.is_ready for worker in self.workers)
        for worker in self.workers:
            if most is not None and loading >= most:
                break
            if not worker.number and worker.next_start <= now:
                worker.occupy(self.pool.start())
                self._by_number[worker.number] = worker
                loading += 1

    def _remove(self, worker: Worker) -> None:
        if worker.number:
            self.pool.stop(worker.number)
            del self._by_number[worker.number]
        self.workers.remove(worker)

    # -- working -----------------------------------------------------------------------------------

    def events(
        self, timeout: float, is_explained: Callable[[Worker], bool] = _not_explained
    ) -> Iterator[tuple[Worker, Message | Lost]]:
        """Yields what workers have sent, and `Lost` for those that have ended.

        Waits up to `timeout` seconds. If `is_explained` returns True for a worker that has ended,
        this does not count as one of its losses. Raises `ModelError` if no worker is left, or if
        one has loaded another model.
        """
        if self._waiting:
            found = list(self._waiting)
            self._waiting.clear()
            yield from found
            return
        yield from self._step(timeout, is_explained)
        self._warn_if_idle()

    def send(self, worker: Worker, message: object) -> None:
        """Sends a message to a worker."""
        self.pool.send(worker.number, message)

    def call(self, method: str, *arguments: Any) -> Any:
        """Returns what a method of the model returns in one of the workers.

        The method must not depend on the worker. Raises `ModelError` if it raises an exception.
        """
        while True:
            worker = self._any_ready()
            number, call = worker.number, Call(next(self._numbers), method, arguments)
            self.send(worker, call)
            answer: Result | None = None
            while answer is None and worker.number == number:
                for sender, message in self._step(POLL_SECONDS):
                    if not isinstance(message, Result):
                        self._waiting.append((sender, message))
                    elif message.number == call.number:
                        answer = message
            if answer is not None:
                if answer.error is not None:
                    raise ModelError(answer.error)
                return answer.value

    def replace(self, worker: Worker) -> None:
        """Ends a worker and starts another one in its place."""
        self.pool.stop(worker.number)
        self._by_number.pop(worker.number, None)
        self._vacate(worker)

    def log_rates(self) -> None:
        """Logs how many requests each worker has answered, and how fast."""
        for worker in self.workers:
            rate = worker.requests / worker.seconds if worker.seconds else 0.0
            host = worker.facts.host if worker.facts is not None else "not started"
            logger.debug(
                "%s (%s): %d requests, %.1f per second", worker.name, host, worker.requests, rate
            )

    def close(self) -> None:
        """Ends all workers."""
        self.pool.close()

    def _any_ready(self) -> Worker:
        while not self.ready:
            self._waiting.extend(self._step(POLL_SECONDS))
            self._warn_if_idle()
        return self.ready[0]

    def _step(
        self, timeout: float, is_explained: Callable[[Worker], bool] = _not_explained
    ) -> Iterator[tuple[Worker, Message | Lost]]:
        """Polls once, deals with everything about starting and ending, and yields the rest.

        A message is dealt with when those before it have been, so that the answers of a worker
        count before its end.
        """
        self._fill()
        for number, message in self.pool.poll(timeout):
            worker = self._by_number.get(number)
            if worker is None:
                continue
            if isinstance(message, Placed):
                worker.begin()
                logger.debug("%s is starting (%s)", worker.name, message.where)
            elif isinstance(message, LogMessage):
                self._log(worker, message)
            elif isinstance(message, Ready):
                self._welcome(worker, message.facts)
            elif isinstance(message, Broken):
                self._refuse(worker, message)
            elif isinstance(message, Ended):
                del self._by_number[number]
                yield worker, self._bury(worker, message, is_explained(worker))
            else:
                yield worker, message

    def _welcome(self, worker: Worker, facts: ModelFacts) -> None:
        """Accepts a worker that has loaded the model, if it is the same model as everywhere."""
        if self._facts is None:
            check_driver(worker.name, facts)
            self._facts = facts
        else:
            check_same(self._facts, worker.name, facts)
        worker.join(facts)
        if self._context is not None:
            self.send(worker, self._context)
        logger.debug("%s is ready (%s)", worker.name, facts.host)

    def _refuse(self, worker: Worker, broken: Broken) -> None:
        """Deals with a worker that could not create the model, or cannot go on.

        Its process ends by itself. If no worker has ever created the model, the reason is raised,
        once for all workers.
        """
        worker.fail(broken.reason)
        if self._facts is None:
            raise (ConfigError if broken.is_config else ModelError)(broken.reason)
        self._log(worker, LogMessage(logging.WARNING, f"a worker has failed: {broken.reason}"))

    def _bury(self, worker: Worker, ended: Ended, is_explained: bool) -> Lost:
        """Prepares a place for its next worker; raises `ModelError` if there is no worker left."""
        where = f" on {worker.facts.host}" if worker.facts is not None else ""
        was_ready = worker.is_ready
        reason = f"failed: {worker.failure.rstrip('.')}" if worker.failure else ended.reason
        self._vacate(worker, counts=not (ended.innocent or is_explained))
        if ended.fatal and self._facts is None:
            raise ModelError(f"no worker could be started: {reason}")
        if self._facts is None and worker.losses > self.max_restarts:
            raise ModelError(
                f"{worker.name} {reason}, {worker.losses} times in a row, before it had "
                "loaded the model. The run can be continued with the same command."
            )
        given_up = worker.losses > self.max_restarts or ended.fatal
        level = logging.WARNING if was_ready or given_up else logging.INFO
        what = "is not replaced again" if given_up else "is replaced"
        logger.log(level, "%s%s %s; it %s.", worker.name, where, reason, what)
        if given_up:
            self.workers.remove(worker)
            self._given_up += 1
            if not self.workers:
                raise ModelError(
                    f"all workers have ended; the last one {reason}. All answers so far are "
                    "kept if the run has an output path: run the same command again to continue."
                )
        return Lost(reason, ended.innocent)

    def _vacate(self, worker: Worker, counts: bool = True) -> None:
        self.restarts += 1
        worker.vacate(self.pool.now(), counts)

    def _log(self, worker: Worker, message: LogMessage) -> None:
        """Logs a message of a worker; the same text from other workers is not logged again."""
        if message.text not in self._logged:
            self._logged.add(message.text)
            logger.log(message.level, "%s: %s", worker.name, message.text)

    def _warn_if_idle(self) -> None:
        now = self.pool.now()
        if self.ready or any(worker.was_placed for worker in self.workers):
            self._warned_at = now
        elif now - self._warned_at > WARN_SECONDS:
            self._warned_at = now
            logger.warning("No worker has a place to run. %s Waiting.", self.pool.shortage())
