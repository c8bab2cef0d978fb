"""`check_model`: runs all checks on a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from lm_eval.api.context import RunContext
from lm_eval.api.instance import RequestType
from lm_eval.api.model import LM
from lm_eval.errors import ConfigError, EvalError, describe_cause
from lm_eval.models.contract import answer_checks, chat_checks, score_checks, text_checks
from lm_eval.models.contract.interview import (
    SEED,
    Interview,
    NotCheckedError,
    random_state_kept,
)
from lm_eval.models.contract.report import CheckResult, ContractReport

Check = Callable[[Interview], list[str]]
"""Returns the problems found; raises `NotCheckedError` if it cannot be made."""

KINDS: tuple[RequestType, ...] = ("loglikelihood", "loglikelihood_rolling", "generate_until")

#: Checks that are made for each type of request.
EACH_TYPE = {
    "answers": answer_checks.check_form,
    "order": answer_checks.check_order,
    "repeated requests": answer_checks.check_repeats,
    "same answers twice": answer_checks.check_determinism,
    "other requests of a call": answer_checks.check_batches,
    "arguments unchanged": answer_checks.check_unchanged,
    "reported answers": answer_checks.check_reports,
}

#: Checks that are made once.
ONCE: dict[str, Check] = {
    "empty context": answer_checks.check_empty_context,
    "unusual characters": answer_checks.check_unusual_text,
    "sums of log-likelihoods": score_checks.check_sums,
    "probabilities up to 1": score_checks.check_probabilities,
    "is_greedy": score_checks.check_greedy_flag,
    "rolling log-likelihood": score_checks.check_rolling,
    "long context": score_checks.check_long_context,
    "long text": score_checks.check_long_text,
    "long prompt": score_checks.check_long_prompt,
    "stop strings": text_checks.check_stop_strings,
    "maximum length": text_checks.check_maximum_length,
    "missing settings": text_checks.check_missing_settings,
    "only the answer": text_checks.check_only_the_answer,
    "chat template": chat_checks.check_chat_template,
}


def check_model(lm: LM) -> ContractReport:
    """Asks a model a few hundred short requests; returns what it does wrong.

    The checks are those of docs/models.md: one answer of the right type per request, in their
    order, which depends on nothing but the request; log-likelihoods that are those of one model;
    answers that end where they must. Types of requests that the class does not implement, and
    checks that cannot be made, are reported as skipped. Of a model with the attribute `stand_in`,
    only the form of its answers is checked.

    Example::

        report = lm_eval.check_model(MyModel())
        assert report.ok, report

    Args:
        lm: the model, an instance of a class derived from `lm_eval.api.model.LM`.

    Raises:
        ConfigError: if `lm` is something else, for example the class instead of an object.
    """
    if not isinstance(lm, LM):
        what = "a class; pass an instance of it" if isinstance(lm, type) else type(lm).__name__
        raise ConfigError(f"check_model takes an instance of a subclass of LM, not {what}.")
    interview = Interview(lm)
    report = ContractReport(type(lm).__name__)
    with random_state_kept(), interview.executor.running(RunContext(seed=SEED)):
        for name, check in _checks():
            report.checks.append(_result(name, check, interview))
    report.requests = interview.requests
    if all(result.skipped for result in report.checks[: len(KINDS)]):
        problem = f"{type(lm).__name__} answers none of the three types of requests."
        report.checks.append(CheckResult("answers", (problem,)))
    return report


def _checks() -> Iterator[tuple[str, Check]]:
    """Yields the name of each check, and a function from an `Interview` to a list of problems."""
    for name, check in EACH_TYPE.items():
        for kind in KINDS:
            yield f"{name} ({kind})", partial(check, kind=kind)
    yield from ONCE.items()


def _result(name: str, check: Check, interview: Interview) -> CheckResult:
    """Returns the result of one check; an error that the model raises is a problem in it."""
    try:
        return CheckResult(name, tuple(check(interview)))
    except NotCheckedError as error:
        return CheckResult(name, skipped=str(error))
    except (Exception, SystemExit) as error:  # third-party code may raise anything
        text = str(error) if isinstance(error, EvalError) else describe_cause(error)
        return CheckResult(name, (text,))
