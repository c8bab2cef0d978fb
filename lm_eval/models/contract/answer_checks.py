"""Checks of what answers look like, and of what they may depend on."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from lm_eval.api.instance import RequestType
from lm_eval.api.model import CacheHook
from lm_eval.models.contract.interview import Arguments, Interview, NotCheckedError, shown
from lm_eval.models.contract.texts import PAIRS, PROMPTS, TEXTS, UNUSUAL, settings
from lm_eval.models.smoke_test import answers_agree, mistake_in

#: Requests of each type.
REQUESTS: dict[RequestType, list[Arguments]] = {
    "loglikelihood": list(PAIRS),
    "loglikelihood_rolling": list(TEXTS),
    "generate_until": [(prompt, settings(8)) for prompt in PROMPTS],
}


def check_form(interview: Interview, kind: RequestType) -> list[str]:
    """Returns what is wrong with the answers to a few plain requests of a type; [] if nothing.

    If something is, no other check asks requests of this type. Raises `NotCheckedError` if the
    class does not implement the type, and the error of the model if it cannot answer.
    """
    interview.require(kind)
    try:
        answers = interview.ask(kind, REQUESTS[kind])
    except NotImplementedError as error:
        reason = f"the class does not implement {kind}"
        interview.give_up(kind, reason)
        raise NotCheckedError(reason) from error
    except Exception:
        interview.give_up(kind, f"{kind} does not answer plain requests")
        raise
    problems = []
    for arguments, answer in zip(REQUESTS[kind], answers, strict=True):
        mistake = mistake_in(kind, answer) if kind != "generate_until" else ""
        if mistake:
            problems.append(f"the answer to {shown(arguments)} is {shown(answer)}: {mistake}.")
    if problems:
        interview.give_up(kind, f"the values that {kind} returns are wrong")
    return problems


def check_order(interview: Interview, kind: RequestType) -> list[str]:
    """Returns a problem if the same requests in another order get each other's answers, else []."""
    interview.require(kind)
    interview.require_real_model()
    arguments = REQUESTS[kind]
    answers = interview.ask(kind, arguments)
    reversed_back = interview.ask(kind, arguments[::-1])[::-1]
    if _all_agree(answers, reversed_back):
        return []
    if sorted(map(repr, answers)) == sorted(map(repr, reversed_back)):
        return ["in reverse order, the same requests get each other's answers."]
    return []  # other answers altogether: the check of determinism reports them


def check_repeats(interview: Interview, kind: RequestType) -> list[str]:
    """Returns a problem if equal requests in one call get different answers, else [].

    Raises `ModelError` if they do not get one answer each.
    """
    interview.require(kind)
    first, second, *_ = interview.make(kind, REQUESTS[kind])
    again = interview.make(kind, REQUESTS[kind][:1])
    answers = interview.ask_requests(kind, [first, second, first, *again, first])
    if interview.is_stand_in:
        return []
    same = [answers[place] for place in (0, 2, 3, 4)]
    if not all(answers_agree(same[0], other) for other in same[1:]):
        return [f"the same request, sent four times in a call, got the answers {shown(same)}."]
    return []


def check_determinism(interview: Interview, kind: RequestType) -> list[str]:
    """Returns a problem if two calls with equal requests and seeds give other answers, else []."""
    interview.require(kind)
    interview.require_real_model()
    answers, again = (interview.ask(kind, REQUESTS[kind]) for _ in range(2))
    return [
        f"the answer to {shown(arguments)} was {shown(one)}, and in a second call {shown(other)}."
        for arguments, one, other in zip(REQUESTS[kind], answers, again, strict=True)
        if not answers_agree(one, other)
    ][:1]


def check_batches(interview: Interview, kind: RequestType) -> list[str]:
    """Returns a problem if answers depend on the other requests of the call, else []."""
    interview.require(kind)
    interview.require_real_model()
    arguments = REQUESTS[kind]
    together, alone = interview.ask(kind, arguments), interview.ask_alone(kind, arguments)
    different = [
        f"{shown(args)} was answered {shown(one)} among {len(arguments)} requests, but "
        f"{shown(other)} alone."
        for args, one, other in zip(arguments, together, alone, strict=True)
        if not answers_agree(one, other)
    ]
    # Rounding may change one token of one generated text, but not of several short ones.
    return different[:1] if kind != "generate_until" or len(different) > 1 else []


def check_unchanged(interview: Interview, kind: RequestType) -> list[str]:
    """Returns a problem if the model changes the arguments of requests, else []."""
    interview.require(kind)
    requests = interview.make(kind, REQUESTS[kind])
    before = [copy.deepcopy(request.args) for request in requests]
    interview.ask_requests(kind, requests)
    return [
        f"the arguments of a request were {shown(old)} before the call and are {shown(new.args)} "
        "after it; copy them before you change them."
        for old, new in zip(before, requests, strict=True)
        if old != new.args
    ][:1]


def check_reports(interview: Interview, kind: RequestType) -> list[str]:
    """Returns a problem if an answer that the model reports to its cache hook is not the final one.

    [] if all are, or if it reports none.
    """
    interview.require(kind)
    reported: list[tuple[str, Any, Any]] = []

    def add_batch(attr: str, args: Sequence[Any], answers: Sequence[Any]) -> None:
        reported.extend((attr, *pair) for pair in zip(args, answers, strict=True))

    interview.lm.set_cache_hook(CacheHook(lambda *report: reported.append(report), add_batch))
    try:
        answers = interview.ask(kind, REQUESTS[kind])
    finally:
        interview.lm.set_cache_hook(CacheHook())
    known = dict(zip(map(repr, REQUESTS[kind]), answers, strict=True))
    problems = []
    for attr, arguments, answer in reported:
        key = repr(tuple(arguments))
        if attr != kind or key not in known:
            problems.append(f"an answer to {attr} {shown(arguments)} is reported; nobody asked it.")
        elif not answers_agree(_as_pair(answer), known[key]):
            problems.append(
                f"{shown(answer)} is reported for {shown(arguments)}, but {shown(known[key])} is "
                "returned."
            )
    return problems[:1]


def check_empty_context(interview: Interview) -> list[str]:
    """Returns a problem if the score of a text without context is invalid or 0, else []."""
    problems = []
    interview.require("loglikelihood")
    ((score, _),) = interview.ask("loglikelihood", [("", "Once upon a time")])
    if mistake := mistake_in("loglikelihood", (score, False)):
        problems.append(f"the score of a text without context is {score}: {mistake}.")
    elif score == 0 and not interview.is_stand_in:
        problems.append("a text without context gets a log-likelihood of 0, as if it were certain.")
    return problems


def check_unusual_text(interview: Interview) -> list[str]:
    """Returns a problem per text in another script, or with emoji or line breaks, scored wrongly.

    A score is wrong if it is no valid log-likelihood.
    """
    interview.require("loglikelihood")
    found = interview.ask("loglikelihood", UNUSUAL)
    return [
        f"the score of {shown(pair)} is {shown(answer)}: {mistake}."
        for pair, answer in zip(UNUSUAL, found, strict=True)
        if (mistake := mistake_in("loglikelihood", answer))
    ]


def _all_agree(some: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(map(answers_agree, some, others))


def _as_pair(answer: Any) -> Any:
    return tuple(answer) if isinstance(answer, list) else answer
