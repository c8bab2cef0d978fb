"""Assigns the answers that a model reports while it works to the positions of their requests."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Outcome, Report
from lm_eval.engine.redacted_answers import without_known_secrets
from lm_eval.redaction import known_redactor

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: Seconds for which answers that are reported one by one are collected before they are forwarded.
REPORT_DELAY = 0.05
#: How many reports with positions are forwarded at once within this time; others wait for its end.
MAX_AT_ONCE = 5


class ModelReports:
    """Forwards the answers of a model to a `Report` callback while the model works.

    A model reports answers through its cache hook (`add`, `add_batch`), as `(arguments, answer)` in
    any order, or yields them in the order of the requests (`returned`). A report through the hook
    does not identify the repeat of a request, so the final outcomes (`finish`) may differ from the
    forwarded ones.
    """

    def __init__(
        self,
        kind: str,
        requests: Sequence[Instance],
        report: Report,
        *,
        is_valid: Callable[[Any], bool],
        to_stored: Callable[[Any], Any],
    ) -> None:
        """Prepares for one call of the model.

        Args:
            kind: the request type.
            requests: the requests that the model gets.
            report: called with positions and outcomes.
            is_valid: returns whether a value is an answer of this type.
            to_stored: converts an answer to the types that the store returns.
        """
        self._kind, self._requests, self._report = kind, requests, report
        self._is_valid, self._to_stored_answer = is_valid, to_stored
        self._redactor = known_redactor()
        self._reported: set[int] = set()
        self._buffer: list[tuple[Any, Any]] = []
        self._returned: list[tuple[int, Any]] = []
        self._buffer_lock, self._report_lock = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None
        self._window, self._at_once = 0.0, 0  # since when, and how many reports since then
        self._error: Exception | None = None
        self._matched = False  # whether answers were reported without their positions

    # -- called while the model works --------------------------------------------------------------

    def add(self, kind: str, arguments: Any, answer: Any) -> None:
        """Receives one answer from the cache hook; ignores it if `kind` is another request type.

        Single answers come in bursts: a timer thread forwards them together to the `Report`
        callback after `REPORT_DELAY`. Raises the error of that callback if it failed for earlier
        answers.
        """
        if kind != self._kind:
            return
        self._raise_error()
        with self._buffer_lock:
            self._buffer.append((arguments, answer))
            self._schedule_flush()

    def add_batch(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        """Receives the answers of a batch from the cache hook, and forwards them at once.

        Ignores them if `kind` is another request type.
        """
        if kind == self._kind:
            with self._report_lock:
                self._forward_matching(arguments, answers)

    def add_at(self, kind: str, positions: Sequence[int], answers: Sequence[Any]) -> None:
        """Receives answers by the positions of their requests, and forwards them.

        The first few within `REPORT_DELAY` are forwarded at once, so that answers that take long
        are stored when they are finished; further ones after that time, together.
        Ignores them if `kind` is another request type, and values that are not answers. Raises the
        error of the `Report` callback if it failed for earlier answers.
        """
        if kind != self._kind:
            return
        self._raise_error()
        valid = [
            (position, answer)
            for position, answer in zip(positions, answers, strict=True)
            if self._is_valid(answer) or isinstance(answer, Failure)
        ]
        with self._buffer_lock:
            self._returned += valid
            now = time.monotonic()
            if now - self._window >= REPORT_DELAY:
                self._window, self._at_once = now, 0
            self._at_once += 1
            at_once = self._at_once <= MAX_AT_ONCE
            if not at_once:
                self._schedule_flush()
        if at_once:
            self.flush()

    def returned(self, position: int, outcome: Outcome) -> None:
        """Receives the outcome of the request at `position` from a model that yields answers.

        It is forwarded after `REPORT_DELAY`, unless the model also reports through its cache hook.
        """
        if position in self._reported or self._buffer:
            return  # the model also reports through its hook; `finish` gets the final outcomes
        with self._buffer_lock:
            self._returned.append((position, outcome))
            self._schedule_flush()

    def _schedule_flush(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(REPORT_DELAY, self._flush_in_timer)
            self._timer.daemon = True
            self._timer.start()

    def _flush_in_timer(self) -> None:
        """Flushes in the timer's thread, and keeps an error for the model's thread.

        `add` and `finish` raise it there.
        """
        try:
            self.flush()
        except Exception as error:
            self._error = error

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    def flush(self) -> None:
        """Forwards the answers that were reported or yielded one by one and are still buffered."""
        with self._report_lock:
            with self._buffer_lock:
                buffer, self._buffer = self._buffer, []
                returned, self._returned = self._returned, []
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
            if buffer:
                self._forward_matching(*zip(*buffer, strict=True))
            new = [(p, self._to_stored(o)) for p, o in returned if p not in self._reported]
            if new:
                self._forward([p for p, _ in new], [o for _, o in new])

    # -- assigning answers to requests -------------------------------------------------------------

    @cached_property
    def _waiting(self) -> dict[Any, list[int]]:
        """Positions of the requests that no report has answered yet, by the key `_texts`.

        The key is a tuple of the strings among the arguments of a request; equal requests share a
        list, in which the first position is the last item. Built when the first report arrives.
        """
        waiting: dict[Any, list[int]] = {}
        for position in range(len(self._requests) - 1, -1, -1):
            waiting.setdefault(_texts(self._requests[position].args), []).append(position)
        return waiting

    def _forward_matching(self, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        """Forwards the answers whose arguments match a waiting request.

        Other answers are ignored: a model may send itself additional requests. So are values that
        are not answers of this request type.
        """
        positions, outcomes = [], []
        for one, value in zip(arguments, answers, strict=True):
            if self._is_valid(value) or isinstance(value, Failure):
                position = self._pop_position(one)
                if position is not None:
                    positions.append(position)
                    outcomes.append(self._to_stored(value))
        if positions:
            self._matched = True
            self._forward(positions, outcomes)

    def _pop_position(self, arguments: Any) -> int | None:
        """Returns the position of the first waiting request with these arguments and removes it.

        Returns None if there is none. The generation settings are compared only if waiting requests
        with the same strings differ in theirs, because a model may have rewritten them.
        """
        waiting = self._waiting.get(_texts(arguments))
        while waiting and waiting[-1] in self._reported:  # by its position
            waiting.pop()
        if not waiting:
            return None
        last = self._requests[waiting[-1]]
        if all(self._requests[p] is last or self._requests[p].args == last.args for p in waiting):
            return waiting.pop()
        given = tuple(arguments) if isinstance(arguments, (tuple, list)) else (arguments,)
        for place in range(len(waiting) - 1, -1, -1):
            if self._requests[waiting[place]].args == given:
                return waiting.pop(place)
        return None

    def _forward(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        self._report(positions, outcomes)
        self._reported.update(positions)

    def _to_stored(self, outcome: Outcome) -> Outcome:
        stored = outcome if isinstance(outcome, Failure) else self._to_stored_answer(outcome)
        return without_known_secrets(stored, self._redactor)

    # -- called when the model has returned --------------------------------------------------------

    def finish(self, returned: Sequence[Outcome]) -> list[Outcome]:
        """Returns the model's outcomes, one per request, in the types that the store returns.

        Scores are then the same whether answers come from the model or from the store. If answers
        were reported without their positions, the failed ones among a request's repeats are moved
        behind the others. Raises the error that occurred if buffered answers could not be
        forwarded.
        """
        self._raise_error()
        outcomes = [self._to_stored(value) for value in returned]
        return self._failures_last(outcomes) if self._matched else outcomes

    def _failures_last(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Returns `outcomes` with the failures among a request's repeats moved behind its answers.

        Answers that were reported without their positions are stored as those of the first repeats.
        """
        if not any(isinstance(outcome, Failure) for outcome in outcomes):
            return outcomes
        start = 0
        for end in range(1, len(outcomes) + 1):
            if end == len(outcomes) or self._requests[end] is not self._requests[start]:
                outcomes[start:end] = sorted(
                    outcomes[start:end], key=lambda outcome: isinstance(outcome, Failure)
                )
                start = end
        return outcomes


def _texts(arguments: Any) -> Any:
    """Returns a tuple of the strings among a request's arguments, to match a report to a request.

    Generation settings are left out, because a model may rewrite them.
    """
    parts = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
    return tuple(part for part in parts if isinstance(part, str))
