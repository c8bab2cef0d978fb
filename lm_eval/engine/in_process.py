"""Calls the model in this process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any

from lm_eval.api.instance import Failure
from lm_eval.api.model import CacheHook
from lm_eval.engine.executor import Executor, Outcome, Report
from lm_eval.errors import EvalError, ModelError, also_known_as

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)

#: Seconds until answers that a model reports one by one are passed on.
REPORT_DELAY = 0.05


class InProcess(Executor):
    """Calls the model's method for a kind of request with all requests of that kind."""

    def __init__(self, lm: LM) -> None:
        self._lm = lm

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        asked = list(requests)
        if not asked:
            return []
        if report is None:
            return call_model(self._lm, kind, asked)
        reports = _HookReports(kind, asked, report)
        self._lm.set_cache_hook(CacheHook(reports.add, reports.add_batch))
        try:
            outcomes = call_model(self._lm, kind, asked)
        finally:
            self._lm.set_cache_hook(CacheHook())
            reports.flush()
        return reports.finish(outcomes)


class Lockstep(InProcess):
    """For processes that hold parts of one model: all ask every request, the first one reports.

    No request may be left out in one of them because its answer is stored: the others would wait.
    """

    needs_every_request = True

    def __init__(self, lm: LM) -> None:
        super().__init__(lm)
        self.collects = lm.rank == 0

    def execute(  # type: ignore[override]
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome] | None:
        outcomes = super().execute(kind, requests, report if self.collects else None)
        return outcomes if self.collects else None

    def gather(self, value: Any) -> list[Any] | None:
        return [value] if self.collects else None


class _HookReports:
    """Passes on what a model reports through its cache hook, by the position of the request.

    A model reports `(arguments, answer)`, possibly in an order of its own. Which repeat of a
    request it means is not said; `finish` settles that with the list that the model returned.
    """

    def __init__(self, kind: str, asked: Sequence[Instance], report: Report) -> None:
        self._kind, self._asked, self._report = kind, asked, report
        self._reported: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._buffer: list[tuple[Any, Any]] = []
        self._timer: threading.Timer | None = None
        self._failure: EvalError | None = None

    @cached_property
    def _waiting(self) -> dict[Any, list[int]]:
        """Positions by what a report is recognised by; made when the first one comes."""
        waiting: dict[Any, list[int]] = {}
        for position in range(len(self._asked) - 1, -1, -1):
            waiting.setdefault(_texts_of(self._asked[position].args), []).append(position)
        return waiting

    def add(self, kind: str, arguments: Any, answer: Any) -> None:
        """Takes one answer. Single answers come in bursts: they are passed on together, soon."""
        if kind != self._kind:
            return
        if self._failure is not None:
            raise self._failure
        with self._lock:
            self._buffer.append((arguments, answer))
            if self._timer is None:
                self._timer = threading.Timer(REPORT_DELAY, self._flush_in_timer)
                self._timer.daemon = True
                self._timer.start()

    def _flush_in_timer(self) -> None:
        """Flushes; an error is raised in the model's own thread, at its next report."""
        try:
            self.flush()
        except EvalError as error:
            self._failure = error

    def flush(self) -> None:
        """Passes on the answers that were reported one by one."""
        with self._lock:
            buffer, self._buffer = self._buffer, []
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if buffer:
                self._pass_on(*zip(*buffer, strict=True))

    def add_batch(self, kind: str, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        if kind == self._kind:
            with self._lock:
                self._pass_on(arguments, answers)

    def _pass_on(self, arguments: Sequence[Any], answers: Sequence[Any]) -> None:
        """Ignores answers to requests that are not waiting: a model may ask more than it was."""
        positions, outcomes = [], []
        for one, value in zip(arguments, answers, strict=True):
            waiting = self._waiting.get(_texts_of(one)) if _SHAPES[self._kind](value) else None
            if waiting:
                positions.append(waiting.pop())
                outcomes.append(_plain(self._kind, value))
        if positions:
            self._reported.update(zip(positions, outcomes, strict=True))
            self._report(positions, outcomes)

    def finish(self, returned: Sequence[Outcome]) -> list[Outcome]:
        """Reports what the model returned and did not report, or reported differently.

        Returns all outcomes in the types in which a store gives them back, so that scores are the
        same whether answers come from the model or from the store.
        """
        plain = [_plain(self._kind, value) for value in returned]
        late: Sequence[int] = range(len(plain))
        outcomes: Sequence[Outcome] = plain
        if self._reported:
            reported = self._reported.get
            late = [i for i, answer in enumerate(plain) if reported(i, _UNREPORTED) != answer]
            outcomes = [plain[i] for i in late]
        if late:
            self._report(late, outcomes)
        return plain


_UNREPORTED = object()


def _texts_of(arguments: Any) -> Any:
    """What a model's report is recognised by: the texts, since it may rewrite the settings."""
    parts = arguments if isinstance(arguments, (tuple, list)) else (arguments,)
    return tuple(part for part in parts if isinstance(part, str))


def _plain(kind: str, answer: Any) -> Any:
    """An answer in the types it will be read back in."""
    if type(answer) is Failure:
        return answer
    if kind != "loglikelihood":
        return answer if isinstance(answer, str) else float(answer)
    value, greedy = answer
    if type(answer) is tuple and type(value) is float and type(greedy) is bool:
        return answer
    return (float(value), bool(greedy))


def call_model(lm: LM, kind: str, asked: list[Instance]) -> list[Outcome]:
    """Returns the model's outcomes, one per request; raises if they are not what it must give."""
    model = f"{type(lm).__name__}.{kind}"
    try:
        given = getattr(lm, kind)(asked)
        if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
            raise ModelError(f"{model} must return a list of answers, not {type(given).__name__}.")
        answers = [_as_python(answer) for answer in given]
    except EvalError:
        raise
    except Exception as error:
        told = ModelError(f"{model} failed: {type(error).__name__}: {error}")
        raise also_known_as(told, error) from error
    if len(answers) != len(asked):
        raise ModelError(
            f"{model} gave {len(answers)} answers to {len(asked)} requests; "
            "it must return one for each, in order."
        )
    if kind == "generate_until" and None in answers:
        logger.warning(
            "%s gave no answer to %d requests; they count as empty.", model, answers.count(None)
        )
        nothing = Failure(f"{model} returned None", scored_as="")
        answers = [nothing if answer is None else answer for answer in answers]
    fits = _SHAPES[kind]
    for request, answer in zip(asked, answers, strict=True):
        if not fits(answer) and type(answer) is not Failure:
            raise ModelError(
                f"{model} answered {answer!r} to a request of task {request.task_name!r}, document "
                f"{request.doc_id}; it must give {_EXPECTED[kind]}."
            )
    return answers


def _as_python(answer: Any) -> Any:
    """An answer with arrays and tensors as the numbers that they hold."""
    if type(answer) in _PLAIN:
        return answer
    if type(answer) is tuple and len(answer) == 2:
        value, greedy = answer
        plain = type(value) in _PLAIN and type(greedy) in _PLAIN
        return answer if plain else (_as_python(value), _as_python(greedy))
    if isinstance(answer, list) and len(answer) == 2:
        return _as_python(tuple(answer))
    size = getattr(answer, "ndim", None)
    if size == 0:
        return answer.item()
    return tuple(answer.tolist()) if size == 1 and len(answer) == 2 else answer


_PLAIN = (float, str, int, bool, type(None), Failure)
_EXPECTED = {
    "loglikelihood": "a log-probability and whether it was greedy",
    "loglikelihood_rolling": "a log-probability",
    "generate_until": "text",
}
_SHAPES: dict[str, Callable[[Any], bool]] = {
    "loglikelihood": lambda a: isinstance(a, (tuple, list)) and len(a) == 2 and _is_number(a[0]),
    "loglikelihood_rolling": lambda a: _is_number(a),
    "generate_until": lambda a: isinstance(a, str),
}


def _is_number(value: Any) -> bool:
    """Whether it is a number, and not NaN, which would be scored as if the model had answered."""
    return isinstance(value, Real) and value == value
