"""Executors that call the model in this process, and the checks of its answers."""

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
from lm_eval.errors import EvalError, ModelError, as_original_type, describe_cause

if TYPE_CHECKING:
    from lm_eval.api.context import RunContext
    from lm_eval.api.instance import Instance
    from lm_eval.api.model import LM

logger = logging.getLogger(__name__)


class InProcess(Executor):
    """Calls the model's method for a request type once, with all requests of that type.

    Answers are reported while the model works: when it reports them through its cache hook, or when
    it yields them if its method is a generator.
    """

    def __init__(self, lm: LM) -> None:
        self._lm = lm

    def running(self, context: RunContext) -> AbstractContextManager[None]:
        """Returns a context manager that passes `context` to the model (`LM.set_run_context`)."""
        return in_context(self._lm, context)

    def usage(self) -> dict[str, int]:
        """Returns what `LM.usage` returns; empty for a model class without this method."""
        return self._lm.usage() if hasattr(self._lm, "usage") else {}

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        """Calls the model once with all requests; returns its answers, one per request, in order.

        Returns an empty list without calling the model if there are no requests. With `report`,
        answers have the types that the store returns, and of a request's repeats the failed ones
        come last. Raises `ModelError` if the model fails or returns answers of a wrong type or
        number.
        """
        listed = list(requests)
        if not listed:
            return []
        if report is None:
            return list(self._checked(kind, listed, self._call_model(kind, listed)))
        reports = ModelReports(
            kind, listed, report, is_valid=_IS_VALID[kind], to_stored=_TO_STORED_TYPES[kind]
        )
        self._lm.set_cache_hook(CacheHook(reports.add, reports.add_batch))
        outcomes = []
        try:
            answers = self._call_model(kind, listed)
            is_lazy = not isinstance(answers, (list, tuple))
            for position, outcome in enumerate(self._checked(kind, listed, answers)):
                outcomes.append(outcome)
                if is_lazy:
                    reports.returned(position, outcome)
        finally:
            self._lm.set_cache_hook(CacheHook())
            reports.flush()
        return reports.finish(outcomes)

    def _call_model(self, kind: str, requests: list[Instance]) -> Iterable[Any]:
        """Calls the model's method for `kind`; returns its answers as a list or an iterator.

        `kind` is the request type. Raises `ModelError` if the method fails, if it returns a string,
        a mapping or no iterable at all, or a list of a wrong length.
        """
        model = f"{type(self._lm).__name__}.{kind}"
        with _model_errors(model):
            answers = getattr(self._lm, kind)(requests)
        if not isinstance(answers, Iterable) or isinstance(answers, (str, Mapping)):
            raise ModelError(
                f"{model} must return a list of answers, not {type(answers).__name__}."
            )
        if isinstance(answers, (list, tuple)) and len(answers) != len(requests):
            raise _wrong_count(model, len(answers), len(requests))
        return answers

    def _checked(
        self, kind: str, requests: list[Instance], answers: Iterable[Any]
    ) -> Iterator[Outcome]:
        """Yields one outcome per request: the model's answers, with arrays as Python numbers.

        `kind` is the request type. A `Failure` is yielded unchanged. A generated answer of None
        becomes an empty string, with a warning. Raises `ModelError` for an answer of a wrong type,
        for NaN, and for too few or too many answers.
        """
        model = f"{type(self._lm).__name__}.{kind}"
        is_valid, count = _IS_VALID[kind], 0
        unanswered: Counter[str] = Counter()
        for answer in _iterate(answers, model):
            if count == len(requests):
                count += 1
                break
            request = requests[count]
            count += 1
            outcome = _as_python(answer)
            if outcome is None and kind == "generate_until":
                unanswered[str(request.task_name)] += 1
                outcome = ""
            elif not isinstance(outcome, Failure) and not is_valid(outcome):
                raise ModelError(
                    f"{model} returned {outcome!r} for a request of task {request.task_name!r}, "
                    f"document {request.doc_id}; it must return {_EXPECTED[kind]}."
                )
            yield outcome
        if count != len(requests):
            found = f"more than {len(requests)}" if count > len(requests) else count
            raise _wrong_count(model, found, len(requests))
        if unanswered:
            logger.warning(
                "%s returned None for %d requests; their answers are scored as empty strings. "
                "Return a string, or a Failure to leave the document out of the scores.",
                model,
                unanswered.total(),
            )
            if hasattr(self._lm, "run_context"):
                self._lm.run_context.usage.failed.update(unanswered)


def _wrong_count(model: str, found: object, expected: int) -> ModelError:
    return ModelError(
        f"{model} returned {found} answers for {expected} requests; it must return one answer per "
        "request, in order."
    )


def _iterate(answers: Iterable[Any], model: str) -> Iterator[Any]:
    """Yields the answers; an error in the model's generator is raised as a `ModelError`.

    `model` is the name of the model's method, for the error message.
    """
    if isinstance(answers, (list, tuple)):
        yield from answers
        return
    with _model_errors(model):
        yield from answers


@contextmanager
def _model_errors(model: str) -> Iterator[None]:
    """Turns an exception in a model's code into a `ModelError` that names the `model` method.

    An `EvalError` passes unchanged. If possible, the new error is also an instance of the original
    exception's type, so that `except` clauses for that type work; for `SystemExit` it is not.
    """
    try:
        yield
    except EvalError:
        raise
    except SystemExit as stop:
        raise ModelError(
            f"{model} ended the program (SystemExit: {stop}); a model must return answers or raise "
            "another exception."
        ) from stop
    except Exception as error:
        named = ModelError(f"{model} failed: {describe_cause(error)}")
        raise as_original_type(named, error) from error


class Lockstep(InProcess):
    """Runs one model that is split over several processes (tensor parallelism).

    All processes execute all requests, and only the process of rank 0 reports and collects the
    answers. Requests with stored answers are executed too: if one process skipped a batch, the
    others would wait for it forever.
    """

    needs_every_request = True

    def __init__(self, lm: LM) -> None:
        super().__init__(lm)
        self.collects = lm.rank == 0

    def execute(
        self, kind: str, requests: Iterable[Instance], report: Report | None
    ) -> list[Outcome]:
        """Executes all requests in every process; only rank 0 reports the outcomes."""
        return super().execute(kind, requests, report if self.collects else None)

    def divide(self, requests: Any, obtain: Any) -> list[Outcome] | None:
        """Returns the outcomes of all `requests` on rank 0, None on the others.

        Every process calls `obtain` with all requests.
        """
        outcomes = obtain(requests)
        return outcomes if self.collects else None

    def gather(self, value: Any) -> list[Any] | None:
        """Returns `[value]` on rank 0 and None on the others.

        The values of the others are left out: every process has executed the same requests.
        """
        return [value] if self.collects else None


# -- checks of answers ------------------------------------------------------------------------


def _as_python(answer: Any) -> Any:
    """Returns an answer with numpy and torch scalars as Python numbers, and pairs as tuples.

    A pair is a list, a tuple or a one-dimensional array of two items. Any other answer is returned
    unchanged.
    """
    if type(answer) in _PLAIN_TYPES:
        return answer
    if type(answer) is tuple and len(answer) == 2:
        value, greedy = answer
        is_plain = type(value) in _PLAIN_TYPES and type(greedy) in _PLAIN_TYPES
        return answer if is_plain else (_as_python(value), _as_python(greedy))
    if isinstance(answer, list) and len(answer) == 2:
        return _as_python(tuple(answer))
    size = getattr(answer, "ndim", None)
    if size == 0:
        return answer.item()
    return tuple(answer.tolist()) if size == 1 and len(answer) == 2 else answer


def _is_number(value: Any) -> bool:
    """Returns whether `value` is a real number other than NaN; infinities and bools count."""
    return isinstance(value, Real) and value == value


def _plain_pair(answer: Any) -> Any:
    value, greedy = answer
    if type(answer) is tuple and type(value) is float and type(greedy) is bool:
        return answer
    return (float(value), bool(greedy))


_PLAIN_TYPES = (float, str, int, bool, type(None), Failure)
_EXPECTED = {
    "loglikelihood": "a pair: a log-likelihood (not NaN), and whether greedy decoding gives it",
    "loglikelihood_rolling": "a log-likelihood (not NaN)",
    "generate_until": "a string",
}
_IS_VALID: dict[str, Callable[[Any], bool]] = {
    "loglikelihood": lambda a: isinstance(a, (tuple, list)) and len(a) == 2 and _is_number(a[0]),
    "loglikelihood_rolling": _is_number,
    "generate_until": lambda a: isinstance(a, str),
}
#: Functions that convert an answer to the types that the store returns.
_TO_STORED_TYPES: dict[str, Callable[[Any], Any]] = {
    "loglikelihood": _plain_pair,
    "loglikelihood_rolling": float,
    "generate_until": lambda a: a,
}
