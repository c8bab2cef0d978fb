"""Calls the model in this process."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any

from lm_eval.api.context import in_context
from lm_eval.api.instance import Failure
from lm_eval.api.model import CacheHook
from lm_eval.engine.executor import Executor, Outcome, Report
from lm_eval.engine.reports import ModelReports
from lm_eval.errors import EvalError, ModelError, also_known_as

if TYPE_CHECKING:
    from lm_eval.api.context import RunContext
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)


class InProcess(Executor):
    """Calls the model's method for a kind of request with all requests of that kind.

    Answers are reported as the model reports them through its cache hook, or as it yields them if
    its method is a generator.
    """

    def __init__(self, lm: LM) -> None:
        self._lm = lm

    def running(self, context: RunContext) -> AbstractContextManager[None]:
        return in_context(self._lm, context)

    def usage(self) -> dict[str, int]:
        return self._lm.usage() if hasattr(self._lm, "usage") else {}

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        asked = list(requests)
        if not asked:
            return []
        if report is None:
            return list(self._checked(kind, asked, self._ask(kind, asked)))
        reports = ModelReports(kind, asked, report, fits=_SHAPES[kind], plain=_PLAIN_OF[kind])
        self._lm.set_cache_hook(CacheHook(reports.add, reports.add_batch))
        outcomes = []
        try:
            given = self._ask(kind, asked)
            as_it_goes = not isinstance(given, (list, tuple))
            for position, outcome in enumerate(self._checked(kind, asked, given)):
                outcomes.append(outcome)
                if as_it_goes:
                    reports.returned(position, outcome)
        finally:
            self._lm.set_cache_hook(CacheHook())
            reports.flush()
        return reports.finish(outcomes)

    def _ask(self, kind: str, asked: list[Instance]) -> Iterable[Any]:
        """Calls the model's method; returns its list of answers, or what yields them."""
        model = f"{type(self._lm).__name__}.{kind}"
        with _errors_of(model):
            given = getattr(self._lm, kind)(asked)
        if not isinstance(given, Iterable) or isinstance(given, (str, Mapping)):
            raise ModelError(f"{model} must return a list of answers, not {type(given).__name__}.")
        if isinstance(given, (list, tuple)) and len(given) != len(asked):
            raise ModelError(
                f"{model} gave {len(given)} answers to {len(asked)} requests; "
                "it must return one for each, in order."
            )
        return given

    def _checked(self, kind: str, asked: list[Instance], given: Iterable[Any]) -> Iterator[Outcome]:
        """Yields the model's outcomes, one per request, each checked."""
        model = f"{type(self._lm).__name__}.{kind}"
        fits, count = _SHAPES[kind], 0
        lost: Counter[str] = Counter()
        for answer in _followed(given, model):
            if count == len(asked):
                count += 1
                break
            request = asked[count]
            count += 1
            outcome = _as_python(answer)
            if outcome is None and kind == "generate_until":
                lost[str(request.task_name)] += 1
                outcome = ""
            elif not isinstance(outcome, Failure) and not fits(outcome):
                raise ModelError(
                    f"{model} answered {outcome!r} to a request of task {request.task_name!r}, "
                    f"document {request.doc_id}; it must give {_EXPECTED[kind]}."
                )
            yield outcome
        if count != len(asked):
            number = "more" if count > len(asked) else str(count)
            raise ModelError(
                f"{model} gave {number} answers to {len(asked)} requests; "
                "it must return one for each, in order."
            )
        if lost:
            logger.warning(
                "%s gave no answer to %d requests; they count as empty.", model, lost.total()
            )
            if hasattr(self._lm, "run_context"):
                self._lm.run_context.usage.failed.update(lost)


def _followed(given: Iterable[Any], model: str) -> Iterator[Any]:
    """Yields the answers; an error of a model that yields them becomes ours."""
    if isinstance(given, (list, tuple)):
        yield from given
        return
    with _errors_of(model):
        yield from given


@contextmanager
def _errors_of(model: str) -> Iterator[None]:
    """Turns an error in a model's code into a `ModelError` that also has its own type."""
    try:
        yield
    except EvalError:
        raise
    except Exception as error:
        told = ModelError(f"{model} failed: {type(error).__name__}: {error}")
        raise also_known_as(told, error) from error


class Lockstep(InProcess):
    """For processes that hold parts of one model: all ask every request, the first one reports.

    No request may be left out in one of them because its answer is stored: the others would wait.
    """

    needs_every_request = True

    def __init__(self, lm: LM) -> None:
        super().__init__(lm)
        self.collects = lm.rank == 0

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        return super().execute(kind, requests, report if self.collects else None)

    def divide(self, requests: Any, obtain: Any) -> list[Outcome] | None:
        outcomes = obtain(requests)
        return outcomes if self.collects else None

    def gather(self, value: Any) -> list[Any] | None:
        return [value] if self.collects else None


# -- what a model may answer --------------------------------------------------------------------


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


def _is_number(value: Any) -> bool:
    """Whether it is a number, and not NaN, which would be scored as if the model had answered."""
    return isinstance(value, Real) and value == value


def _plain_pair(answer: Any) -> Any:
    value, greedy = answer
    if type(answer) is tuple and type(value) is float and type(greedy) is bool:
        return answer
    return (float(value), bool(greedy))


_PLAIN = (float, str, int, bool, type(None), Failure)
_EXPECTED = {
    "loglikelihood": "a log-probability and whether it was greedy",
    "loglikelihood_rolling": "a log-probability",
    "generate_until": "text",
}
_SHAPES: dict[str, Callable[[Any], bool]] = {
    "loglikelihood": lambda a: isinstance(a, (tuple, list)) and len(a) == 2 and _is_number(a[0]),
    "loglikelihood_rolling": _is_number,
    "generate_until": lambda a: isinstance(a, str),
}
#: An answer in the types in which a store gives it back.
_PLAIN_OF: dict[str, Callable[[Any], Any]] = {
    "loglikelihood": _plain_pair,
    "loglikelihood_rolling": float,
    "generate_until": lambda a: a,
}
