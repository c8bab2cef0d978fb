"""Sends a few requests of each type to a model and checks its answers (`lm-eval validate`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.api.instance import Failure, Instance, RequestType
from lm_eval.api.model import LM
from lm_eval.engine.in_process import InProcess
from lm_eval.errors import ModelError

_SETTINGS = {"until": ["\n"], "max_gen_toks": 16, "do_sample": False}
_REQUESTS: dict[RequestType, list[tuple[Any, ...]]] = {
    "loglikelihood": [
        ("The capital of France is", " Paris"),
        ("Question: What is 2 + 3?\nAnswer:", " 5"),
        ("", "Once upon a time"),
    ],
    "loglikelihood_rolling": [
        ("The ferry leaves the harbor at eight.",),
        ("A library lends books, but this one also lends tools and two old canoes.",),
    ],
    "generate_until": [
        ("Question: What is 2 + 3?\nAnswer:", _SETTINGS),
        ("The days of the week are Monday, Tuesday,", _SETTINGS),
    ],
}


@dataclass
class SmokeTestReport:
    """One line per request type, and the mistakes among the answers."""

    lines: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def smoke_test(lm: LM) -> SmokeTestReport:
    """Sends a few requests of each type to `lm`, in two orders; returns a report on the answers.

    Errors of the model are listed among its `problems`. A request type that the class does not
    implement (`NotImplementedError`) is reported, but is not a problem, unless no type is
    implemented: tasks of the other types can be run.
    """
    report = SmokeTestReport()
    executor = InProcess(lm)
    missing = 0
    with executor.running(RunContext(seed=0)):
        for request_type in _REQUESTS:
            try:
                summary, problems = _test_type(executor, request_type)
                report.problems += problems
            except NotImplementedError as error:
                missing += 1
                summary = f"not implemented ({error}); tasks that need it cannot be run"
            except ModelError as error:
                report.problems.append(str(error))
                summary = "failed"
            report.lines.append(f"{request_type}: {summary}.")
    if missing == len(_REQUESTS):
        report.problems.append(f"{type(lm).__name__} implements none of the request types.")
    return report


def _test_type(executor: InProcess, request_type: RequestType) -> tuple[str, list[str]]:
    """Returns a summary of the answers to requests of one type, and the mistakes in them.

    Raises `ModelError` if the model fails; it is also a `NotImplementedError` if that was the
    cause.
    """
    requests = [
        Instance(request_type, {}, arguments, 0, ("validate", number, 1))
        for number, arguments in enumerate(_REQUESTS[request_type])
    ]
    answers = executor.execute(request_type, requests, None)
    problems, failed = [], 0
    for request, answer in zip(requests, answers, strict=True):
        if isinstance(answer, Failure):
            failed += 1
            problems.append(f"{request_type}: the request {request.args!r} failed: {answer.reason}")
        elif mistake := mistake_in(request_type, answer):
            problems.append(
                f"{request_type}: the answer to {request.args!r} is {answer!r}; {mistake}."
            )
    if failed == len(answers):
        return f"{failed} requests failed", problems
    answered = len(answers) - failed
    summary = f"{answered} request{'s' if answered != 1 else ''} answered"
    if failed:
        summary += f", {failed} failed"
    reversed_back = executor.execute(request_type, requests[::-1], None)[::-1]
    if not all(map(answers_agree, answers, reversed_back)):
        # The same answers at other places: nothing that sampling would produce.
        if sorted(map(repr, answers)) == sorted(map(repr, reversed_back)):
            problems.append(
                f"{request_type}: the answers are not in the order of the requests: the same "
                "requests in reverse order got each other's answers."
            )
        else:
            summary += "; the same requests in reverse order got other answers (does it sample?)"
    return summary, problems


def answers_agree(first: Any, second: Any) -> bool:
    """Returns whether two answers to one request are equal up to rounding in another batch.

    Texts must be equal; log-likelihoods may differ by 0.02 or 2%. Greedy flags are not compared.
    """
    if isinstance(first, (str, Failure)) or isinstance(second, (str, Failure)):
        return bool(first == second)
    values = [a[0] if isinstance(a, tuple) else a for a in (first, second)]
    return math.isclose(*values, rel_tol=0.02, abs_tol=0.02)


def mistake_in(request_type: RequestType, answer: Any) -> str:
    """Returns what is wrong with the value of an answer, which has the right type; "" if nothing.

    For generated text, the stop string must be a line break.
    """
    return _ANSWER_CHECKS[request_type](answer)


def _check_pair(answer: tuple[float, Any]) -> str:
    value, greedy = answer
    return _check_number(value) or (
        "" if greedy in (True, False) else "the second value must be True or False"
    )


def _check_number(value: float) -> str:
    return "a log-probability is never positive" if value > 1e-3 else ""


def _check_text(text: str) -> str:
    return "the text must end before the stop string '\\n'" if "\n" in text else ""


#: Functions that return what is wrong with an answer, or "".
_ANSWER_CHECKS: dict[RequestType, Callable[[Any], str]] = {
    "loglikelihood": _check_pair,
    "loglikelihood_rolling": _check_number,
    "generate_until": _check_text,
}
