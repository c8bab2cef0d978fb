"""Executors that call the model in this process, and the checks of its answers."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from lm_eval.api.context import in_context
from lm_eval.api.instance import Failure
from lm_eval.api.model import CacheHook
from lm_eval.engine.answer_checks import EXPECTED, as_python, is_answer, to_stored
from lm_eval.engine.executor import Executor, Outcome, Report
from lm_eval.engine.reports import ModelReports
from lm_eval.errors import EvalError, ModelError, as_original_type, describe_cause, raise_interrupt

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
            kind,
            listed,
            report,
            is_valid=lambda answer: is_answer(kind, as_python(answer)),
            to_stored=lambda answer: to_stored(kind, as_python(answer)),
        )
        self._lm.set_cache_hook(CacheHook(reports.add, reports.add_batch, reports.add_at))
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
        count = 0
        unanswered: Counter[str] = Counter()
        for answer in _iterate(answers, model):
            if count == len(requests):
                count += 1
                break
            request = requests[count]
            count += 1
            outcome = as_python(answer)
            if outcome is None and kind == "generate_until":
                unanswered[str(request.task_name)] += 1
                outcome = ""
            elif not isinstance(outcome, Failure) and not is_answer(kind, outcome):
                raise ModelError(
                    f"{model} returned {_shortened(outcome)} for a request of task "
                    f"{request.task_name!r}, document {request.doc_number} (request {request.idx} "
                    f"of it); it must return {EXPECTED[kind]}."
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


def _shortened(value: object) -> str:
    """Returns the `repr` of a value for a message, cut off if it is long."""
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]} …"


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
    exception's type, so that `except` clauses for that type work; for `SystemExit` it is not. The
    user's own interruption passes too.
    """
    try:
        yield
    except EvalError:
        raise
    except BaseException as error:
        raise_interrupt(error)
        if isinstance(error, Exception):
            named = ModelError(f"{model} failed: {describe_cause(error)}")
            raise as_original_type(named, error) from error
        raise ModelError(
            f"{model} ended the program ({describe_cause(error)}); a model must return answers or "
            "raise another exception."
        ) from error


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
