"""Gives portions of requests to workers, and collects their answers.

A free worker takes the next portion, and has another one waiting. When all portions are given out,
an idle worker takes over what others have not begun, and copies of portions that take much longer
than expected; the first answer counts. The requests of a worker that ended are given to others. A
portion that has ended a worker, or made the model raise an exception, is divided, so that after
three times only the request that is the cause is left. It gets a `Failure`, and the rest finishes.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from lm_eval.api.instance import Failure, Instance
from lm_eval.engine.workers.assignments import Assignment, Counts
from lm_eval.engine.workers.crew import Crew, Lost, Worker
from lm_eval.engine.workers.messages import (
    Answers,
    Cancel,
    Finished,
    Raised,
    Requests,
    Work,
)
from lm_eval.engine.workers.pace import Pace
from lm_eval.engine.workers.portions import Backlog, Portion
from lm_eval.errors import ConfigError, ModelError

logger = logging.getLogger(__name__)

#: How many portions a worker has at a time: one that it answers, and one to go on with.
IN_FLIGHT = 2
#: How often a portion may end a worker or raise an exception.
MAX_STRIKES = 3
#: How many more times if workers have also ended with other requests: then something else ends
#: them, such as preemption, and requests are rather not to blame.
DOUBT_STRIKES = 2
#: How many requests in a row may be given up, without an answer in between, before the workers that
#: end with such requests count as lost for another reason.
MAX_GIVEN_UP = 16
#: Into how many parts it is divided after the first time; after the second, into single requests.
PARTS = 16
#: How many workers may answer the same request at a time.
MAX_COPIES = 2
#: A worker whose model raises so many exceptions in a row is replaced.
MAX_EXCEPTIONS = 3
#: If all workers are busy for so long with copies that nobody needs, they are replaced.
STALE_SECONDS = 60.0
#: How long to wait for the last message of a portion whose answers are all there, in seconds.
FINISH_SECONDS = 30.0
#: How often rates are logged (`-v DEBUG`), and the longest time to wait for an event, in seconds.
RATES_SECONDS = 30.0
WAIT_SECONDS = 0.5


#: Called with the positions of requests and their outcomes, as soon as they are known.
Deliver = Callable[[Sequence[int], Sequence[Any]], None]


class Scheduler:
    """Answers requests with the workers of a crew.

    Attributes:
        counts: what was counted so far.
    """

    def __init__(self, crew: Crew, batch: int | None = None) -> None:
        """Takes a crew that is started, and the batch size of the model, if it is fixed."""
        self._crew, self._batch = crew, batch
        self._numbers = itertools.count(1)
        #: What each worker has, in the order in which it answers.
        self._open: dict[Worker, dict[int, Assignment]] = {}
        self.counts = Counts()

    def reset_counts(self) -> None:
        """Starts counting anew."""
        self.counts = Counts()

    def run(self, kind: str, requests: Iterable[Instance], deliver: Deliver) -> None:
        """Answers all requests of one type.

        Args:
            kind: the request type.
            requests: the requests; they are read in windows, as they are needed.
            deliver: called with positions and outcomes. An outcome may be delivered again, with
                another value, which then counts.

        Raises `ModelError` if the model fails on everything, or if no worker is left.
        """
        _Run(self._crew, self._open, self.counts, kind, deliver, self._numbers).answer(
            Backlog(requests, self._batch)
        )


class _Run:
    """Answers requests of one type."""

    def __init__(
        self,
        crew: Crew,
        open: dict[Worker, dict[int, Assignment]],
        counts: Counts,
        kind: str,
        deliver: Deliver,
        numbers: Iterable[int],
    ) -> None:
        self._crew, self._open, self._counts = crew, open, counts
        self._kind, self._deliver, self._numbers = kind, deliver, iter(numbers)
        self._stale = {number for own in open.values() for number in own}
        #: Positions that are given out or in the backlog again, and have no outcome yet.
        self._unanswered: set[int] = set()
        self._pace = Pace()
        self._any_answer = False
        self._exceptions = 0
        #: How many workers have ended, apart from those that a request that was given up has ended.
        self._losses = 0
        #: How many requests have been given up since the last answer.
        self._given_up = 0
        #: How many exceptions the model of each worker has raised in a row.
        self._in_a_row: Counter[Worker] = Counter()
        self._began = crew.pool.now()
        self._all_answered: float | None = None
        self._warned: set[int] = set()
        self._usable = len(crew.ready)

    def answer(self, backlog: Backlog) -> None:
        """Answers everything in the backlog."""
        self._backlog = backlog
        logged = self._crew.pool.now()
        while True:
            self._assign()
            if not backlog and not self._unanswered and not self._is_finishing():
                break
            for worker, event in self._crew.events(WAIT_SECONDS, self._has_suspect):
                self._handle(worker, event)
            if self._crew.pool.now() - logged > RATES_SECONDS:
                logged = self._crew.pool.now()
                self._crew.log_rates()
                self._warn_of_stuck_workers()
        for own in self._open.values():  # copies that are no longer needed
            for number, assignment in own.items():
                self._cancel(number, assignment)

    def _is_finishing(self) -> bool:
        """Returns whether a worker has sent all answers of a portion, but not its last message.

        That one has the counts of the portion, and answers that have changed. It is not awaited
        for long.
        """
        now = self._crew.pool.now()
        self._all_answered = self._all_answered or now
        return now - self._all_answered < FINISH_SECONDS and any(
            len(one.accepted) == len(one.portion) and number not in self._stale
            for own in self._open.values()
            for number, one in own.items()
        )

    # -- giving out --------------------------------------------------------------------------------

    def _assign(self) -> None:
        """Gives portions to workers that have fewer than they should."""
        ready = self._crew.ready
        usable = [worker for worker in ready if not self._stale & set(self._open.get(worker, ()))]
        if ready and not usable and self._crew.pool.now() - self._began > STALE_SECONDS:
            for worker in ready:
                self._replace(worker)
        if len(usable) > self._usable:  # those that have joined take over some
            self._take_back(len(usable) - self._usable)
        self._usable = len(usable)
        for depth in range(IN_FLIGHT):
            for worker in usable:
                if self._load(worker) == depth:
                    portion = self._next_portion()
                    if portion is None:
                        break
                    self._give(worker, portion)
        idle = [worker for worker in usable if not self._open.get(worker)]
        if idle and not self._backlog:
            self._help_others(idle)

    def _load(self, worker: Worker) -> int:
        own = self._open.get(worker, {})
        return sum(not one.is_cancelled for one in own.values())

    def _next_portion(self) -> Portion | None:
        """Returns the next portion of the backlog, without what was answered meanwhile.

        Workers that are still loading the model count as well: they will want their share.
        """
        workers = len(self._crew.workers)
        while (portion := self._backlog.take(workers)) is not None:
            if not portion.is_returned:
                self._unanswered.update(portion.positions)
                return portion
            rest = portion.only(p for p in portion.positions if p in self._unanswered)
            if rest is not None:
                return rest
        return None

    def _give(self, worker: Worker, portion: Portion) -> None:
        number, now = next(self._numbers), self._crew.pool.now()
        own = self._open.setdefault(worker, {})
        own[number] = Assignment(worker, portion, now, None if own else now)
        self._counts.count_portion()
        self._crew.send(
            worker, Work(number, self._kind, Requests(portion.requests, portion.repeats))
        )

    def _help_others(self, idle: Sequence[Worker]) -> None:
        """Lets idle workers take over what others have not begun, or copy what takes too long."""
        self._take_back(len(idle))
        helpers = deque(idle)
        while helpers and (portion := self._next_portion()) is not None:
            self._give(helpers.popleft(), portion)
        for assignment in self._stragglers():
            if not helpers:
                break
            rest = self._rest(assignment)
            if rest is not None:
                for part in rest.split(len(helpers)) if len(rest) > 1 else [rest]:
                    self._counts.count_again(len(part))
                    self._give(helpers.popleft(), part)

    def _take_back(self, count: int) -> None:
        """Takes back the `count` largest portions that no worker has begun with."""
        waiting = [
            (number, one)
            for own in self._open.values()
            for number, one in list(own.items())[1:]
            if not one.is_cancelled and number not in self._stale
        ]
        waiting.sort(key=lambda item: -item[1].portion.cost)
        for number, assignment in waiting[:count]:
            rest = self._rest(assignment)
            self._cancel(number, assignment)
            if rest is not None:
                self._put_back(rest)

    def _stragglers(self) -> list[Assignment]:
        """Returns the portions that take much longer than expected, the oldest first."""
        now = self._crew.pool.now()
        copies: dict[int, int] = {}
        heads = [next(iter(own.values())) for own in self._open.values() if own]
        for one in heads:
            for position in one.portion.positions:
                copies[position] = copies.get(position, 0) + 1
        found = []
        for one in heads:
            if one.is_cancelled or not self._pace.is_straggler(one, now):
                continue
            waiting = [p for p in one.portion.positions if p in self._unanswered]
            if waiting and copies[waiting[0]] < MAX_COPIES:
                found.append(one)
        return sorted(found, key=lambda one: one.began or 0.0)

    def _warn_of_stuck_workers(self) -> None:
        """Warns, once each, of portions that take so long that the model may hang on them."""
        now = self._crew.pool.now()
        for own in self._open.values():
            for number, one in itertools.islice(own.items(), 1):
                if number in self._warned or number in self._stale:
                    continue
                rest = self._rest(one)
                if rest is None or one.began is None or not self._pace.is_stuck(one, now):
                    continue
                self._warned.add(number)
                first = rest.requests[0]
                logger.warning(
                    "%s has not answered %d request(s), the first of task %s, document %s, for "
                    "%.0f s, much longer than expected. If the model hangs, interrupt this run; a "
                    "run with an output path can be resumed.",
                    one.worker.name,
                    len(rest),
                    first.task_name,
                    first.doc_number,
                    now - one.began,
                )

    def _cancel(self, number: int, assignment: Assignment) -> None:
        if not assignment.is_cancelled:
            assignment.cancel()
            self._crew.send(assignment.worker, Cancel(number))

    def _rest(self, assignment: Assignment) -> Portion | None:
        """Returns the part of a portion that nobody has answered yet."""
        positions = assignment.portion.positions
        return assignment.portion.only(p for p in positions if p in self._unanswered)

    def _put_back(self, portion: Portion) -> None:
        self._counts.count_again(len(portion))
        self._backlog.put_back(portion)

    # -- collecting --------------------------------------------------------------------------------

    def _handle(self, worker: Worker, event: Any) -> None:
        own = self._open.get(worker, {})
        if isinstance(event, Lost):
            self._open.pop(worker, None)
            self._lose(own, event)
            return
        assignment = own.get(event.number)
        if assignment is None:
            return  # of a worker that was given up
        if event.number in self._stale:
            if isinstance(event, (Finished, Raised)):
                self._stale.discard(event.number)
                del own[event.number]
            return
        if isinstance(event, Answers):
            self._accept(assignment, event.positions, event.outcomes)
        elif isinstance(event, Finished):
            self._finish(worker, event, assignment)
        elif isinstance(event, Raised):
            self._close(worker, event.number)
            if event.is_config:
                raise ConfigError(event.reason)
            self._exceptions += 1
            if not self._any_answer and self._exceptions >= MAX_STRIKES:
                raise ModelError(event.reason)
            self._strike(assignment, event.reason, f"the model failed: {event.reason}")
            self._in_a_row[worker] += 1
            if self._in_a_row[worker] >= MAX_EXCEPTIONS:  # such as after an error of the device
                del self._in_a_row[worker]
                self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        """Ends a worker that is of no use; another one is started in its place."""
        self._crew.replace(worker)
        self._lose(self._open.pop(worker, {}), Lost("was replaced", innocent=True))

    def _accept(
        self, assignment: Assignment, places: Sequence[int], outcomes: Sequence[Any]
    ) -> None:
        """Delivers outcomes that are the first ones for their requests, or correct earlier ones."""
        positions = assignment.portion.positions
        kept, values = [], []
        for place, outcome in zip(places, outcomes, strict=True):
            position = positions[place]
            if position in self._unanswered:
                self._unanswered.discard(position)
                assignment.accepted.add(position)
            elif position not in assignment.accepted:
                continue
            kept.append(position)
            values.append(outcome)
        if kept:
            self._any_answer = True
            self._given_up = 0
            assignment.worker.answer()
            assignment.begin(assignment.given)
            self._deliver(kept, values)

    def _finish(self, worker: Worker, event: Finished, assignment: Assignment) -> None:
        self._close(worker, event.number)
        if event.cancelled:
            return
        self._in_a_row.pop(worker, None)
        self._accept(assignment, event.positions, event.outcomes)
        worker.count(len(assignment.portion), event.seconds)
        self._pace.count(assignment, event.seconds)
        if assignment.accepted:
            self._counts.add(event)
        rest = self._rest(assignment)
        if rest is not None and not self._is_open_elsewhere(rest):
            raise ModelError(
                f"{worker.name} finished a portion without answering all its requests; this is a "
                "mistake in lm_eval."
            )

    def _is_open_elsewhere(self, portion: Portion) -> bool:
        given = {
            p for own in self._open.values() for one in own.values() for p in one.portion.positions
        }
        return given.issuperset(portion.positions)

    def _close(self, worker: Worker, number: int) -> None:
        """Removes an assignment; the worker now begins with the next one."""
        own = self._open[worker]
        del own[number]
        for one in own.values():
            one.begin(self._crew.pool.now())
            break

    def _lose(self, own: dict[int, Assignment], lost: Lost) -> None:
        """Gives what an ended worker had to others; the portion that it answered gets a strike."""
        for place, (number, assignment) in enumerate(own.items()):
            if number in self._stale:
                self._stale.discard(number)
                continue
            if assignment.is_cancelled:
                continue  # others have it already
            if place == 0 and not lost.innocent:
                self._losses += 1
                reason = f"the worker {lost.reason}"
                self._strike(assignment, reason, reason, self._losses)
            elif rest := self._unshared_rest(assignment):
                self._put_back(rest)

    def _has_suspect(self, worker: Worker) -> bool:
        """Returns whether a worker answers a single request that has ended others before.

        If it ends as well, that is no reason to give it up, as long as there are answers to others,
        or only a few requests in all: a resumed run may ask only for those that end workers.
        """
        few = not self._backlog.has_new and len(self._unanswered) <= MAX_GIVEN_UP
        for number, one in self._open.get(worker, {}).items():
            single = all(other is one.portion.requests[0] for other in one.portion.requests)
            suspect = number not in self._stale and one.portion.strikes > 0 and single
            return suspect and (self._any_answer or few) and self._given_up < MAX_GIVEN_UP
        return False

    def _unshared_rest(self, assignment: Assignment) -> Portion | None:
        """Returns the part of a portion that has no outcome and that no other worker has."""
        elsewhere = {
            position
            for own in self._open.values()
            for one in own.values()
            if one is not assignment and not one.is_cancelled
            for position in one.portion.positions
        }
        positions = assignment.portion.positions
        return assignment.portion.only(
            p for p in positions if p in self._unanswered and p not in elsewhere
        )

    def _strike(self, assignment: Assignment, what: str, reason: str, losses: int = 0) -> None:
        """Divides a portion that has failed; a single request that failed too often is given up.

        `losses` is how many workers have ended so far, if one of them is the failure.
        """
        rest = self._unshared_rest(assignment)
        if rest is None:
            return
        strikes = rest.strikes + 1
        distinct = len({id(request) for request in rest.requests})
        allowed = MAX_STRIKES + (DOUBT_STRIKES if losses > strikes else 0)
        if strikes >= allowed and distinct == 1:
            self._quarantine(rest, reason)
            return
        parts = rest.split(PARTS if strikes < MAX_STRIKES - 1 else len(rest))
        logger.info(
            "%d requests of a worker are given to others%s: %s",
            len(rest),
            f", in {len(parts)} parts" if len(parts) > 1 else "",
            what,
        )
        for part in parts:
            self._put_back(part.struck())

    def _quarantine(self, portion: Portion, reason: str) -> None:
        """Gives up the request that is the cause of failures."""
        request, attempts = portion.requests[0], portion.strikes + 1
        logger.error(
            "task %s, document %s (request %s of it) is given up after %d attempts: %s.",
            request.task_name,
            request.doc_number,
            request.idx,
            attempts,
            reason.rstrip("."),
        )
        self._counts.count_given_up()
        self._given_up += 1
        self._losses = max(0, self._losses - attempts)  # it was the cause of these
        self._unanswered.difference_update(portion.positions)
        failure = Failure(f"given up after {attempts} attempts: {reason}")
        self._deliver(portion.positions, [failure] * len(portion))
