"""Answers that a model reports while it works, passed on by the position of their request."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Failure
from lm_eval.engine.executor import Outcome, Report

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance

#: Seconds until answers that come one by one are passed on.
REPORT_DELAY = 0.05


class ModelReports:
    """Passes on what a model reports through its cache hook, or yields one after the other.

    Through its hook a model reports `(arguments, answer)`, in any order. The report does not
    identify the repeat of a request, so the outcomes that `finish` returns may differ.
    """

    def __init__(
        self,
        kind: str,
        asked: Sequence[Instance],
        report: Report,
        *,
        fits: Callable[[Any], bool],
        plain: Callable[[Any], Any],
    ) -> None:
        """`fits` tells whether a value is an answer, `plain` brings it into a store's types."""
        self._kind, self._asked, self._report = kind, asked, report
        self._fits, self._plain_answer = fits, plain
        self._reported: set[int] = set()
        self._buffer: list[tuple[Any, Any]] = []
        self._returned: list[tuple[int, Any]] = []
        self._buffer_lock, self._report_lock = threading.Lock(), threading.Lock()
        self._timer: threading.Timer | None = None
        self._failure: Exception | None = None

    # -- while the model works ------------------------------------------------------------------

    def add(self, kind: str, arguments: Any, answer: Any) -> None:
        """Takes one answer. Single answers come in bursts: they are passed on together, soon."""
        if kind != self._kind:
            return
        self._raise_failure()
        with self._buffer_lock:
            self._buffer.append((arguments, answer))
            self._soon()

    def add_batch(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        if kind == self._kind:
            with self._report_lock:
                self._match(arguments, answers)

    def returned(self, position: int, outcome: Outcome) -> None:
        """Takes what the model returns for a request, for models that yield as they go."""
        if position in self._reported or self._buffer:
            return  # it reports through its hook; `finish` has the last word
        with self._buffer_lock:
            self._returned.append((position, outcome))
            self._soon()

    def _soon(self) -> None:
        if self._timer is None:
            self._timer = threading.Timer(REPORT_DELAY, self._flush_in_timer)
            self._timer.daemon = True
            self._timer.start()

    def _flush_in_timer(self) -> None:
        """Flushes; an error is raised in the model's own thread: at its next report, or the end."""
        try:
            self.flush()
        except Exception as error:
            self._failure = error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def flush(self) -> None:
        """Passes on the answers that came one by one."""
        with self._report_lock:
            with self._buffer_lock:
                buffer, self._buffer = self._buffer, []
                returned, self._returned = self._returned, []
                if self._timer is not None:
                    self._timer.cancel()
                    self._timer = None
            if buffer:
                self._match(*zip(*buffer, strict=True))
            new = [(p, self._plain(o)) for p, o in returned if p not in self._reported]
            if new:
                self._pass_on([p for p, _ in new], [o for _, o in new])

    # -- which request it was -------------------------------------------------------------------

    @cached_property
    def _waiting(self) -> dict[Any, list[int]]:
        """Positions by the texts of their requests; made when the first report comes."""
        waiting: dict[Any, list[int]] = {}
        for position in range(len(self._asked) - 1, -1, -1):
            waiting.setdefault(_texts_of(self._asked[position].args), []).append(position)
        return waiting

    def _match(self, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        """Ignores answers to requests that are not waiting: a model may ask itself more."""
        positions, outcomes = [], []
        for one, value in zip(arguments, answers, strict=True):
            if self._fits(value) or isinstance(value, Failure):
                position = self._take(one)
                if position is not None:
                    positions.append(position)
                    outcomes.append(self._plain(value))
        if positions:
            self._pass_on(positions, outcomes)

    def _take(self, arguments: Any) -> int | None:
        """The first waiting request with these arguments.

        A model may have rewritten the generation settings: if no request has just these, the texts
        decide, unless requests with the same text differ in their settings.
        """
        waiting = self._waiting.get(_texts_of(arguments))
        if not waiting:
            return None
        last = self._asked[waiting[-1]]
        if all(self._asked[p] is last or self._asked[p].args == last.args for p in waiting):
            return waiting.pop()
        given = tuple(arguments) if isinstance(arguments, (tuple, list)) else (arguments,)
        for place in range(len(waiting) - 1, -1, -1):
            if self._asked[waiting[place]].args == given:
                return waiting.pop(place)
        return None

    def _pass_on(self, positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
        self._report(positions, outcomes)
        self._reported.update(positions)

    def _plain(self, outcome: Outcome) -> Outcome:
        return outcome if isinstance(outcome, Failure) else self._plain_answer(outcome)

    # -- when it has returned -------------------------------------------------------------------

    def finish(self, returned: Sequence[Outcome]) -> list[Outcome]:
        """Returns the model's outcomes in the types in which a store gives them back.

        So scores are the same whether answers come from the model or from the store. Raises if
        answers could not be passed on.
        """
        self._raise_failure()
        return self._failures_last([self._plain(value) for value in returned])

    def _failures_last(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Moves the failures among the repeats of a request behind its answers.

        Models count on it that the repeats which are left are the last ones, when they go on.
        """
        if not any(isinstance(outcome, Failure) for outcome in outcomes):
            return outcomes
        start = 0
        for end in range(1, len(outcomes) + 1):
            if end == len(outcomes) or self._asked[end] is not self._asked[start]:
                outcomes[start:end] = sorted(
                    outcomes[start:end], key=lambda outcome: isinstance(outcome, Failure)
                )
                start = end
        return outcomes


def _texts_of(arguments: Any) -> Any:
    """What a model's report is recognised by: the texts, since it may rewrite the settings."""
    parts = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
    return tuple(part for part in parts if isinstance(part, str))
