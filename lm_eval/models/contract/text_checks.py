"""Checks of generated text: where it ends, and that it is only the answer."""

from __future__ import annotations

from typing import Any

from lm_eval.models.contract.interview import Interview, NotCheckedError, shown
from lm_eval.models.contract.texts import PROMPTS, settings

UNREADABLE = "\ufffd"
"""What a decoder writes for bytes that are no character."""


def check_stop_strings(interview: Interview) -> list[str]:
    """Returns a problem if an answer does not end before the first stop string, else [].

    Raises `NotCheckedError` if the model generates too little text.
    """
    interview.require("generate_until")
    fixed = interview.ask("generate_until", [(p, settings(16, ["\n", "zz"])) for p in PROMPTS])
    problems = [
        f"the answer to {shown(prompt)} contains a stop string ('\\n' or 'zz'): {answer!r}."
        for prompt, answer in zip(PROMPTS, fixed, strict=True)
        if "\n" in answer or "zz" in answer
    ]
    if interview.is_stand_in:
        return problems[:1]
    free = interview.ask("generate_until", [(prompt, settings(16)) for prompt in PROMPTS])
    asked, expected = [], []
    for prompt, answer in zip(PROMPTS, free, strict=True):
        for until in _stops_in(answer):
            asked.append((prompt, settings(16, until)))
            expected.append(_cut(answer, until))
    if not asked and not problems:
        raise NotCheckedError("the model generates too little text")
    found = interview.ask("generate_until", asked) if asked else []
    different = [
        f"with until={arguments[1]['until']!r}, the answer to {shown(arguments[0])} must be "
        f"{wanted!r}, which the model generates before it; it is {answer!r}."
        for arguments, answer, wanted in zip(asked, found, expected, strict=True)
        if answer != wanted
    ]
    # Rounding may change a token of a few answers; it does not move the end of the same text.
    moved = any(
        answer != wanted and (answer.startswith(wanted) or wanted.startswith(answer))
        for answer, wanted in zip(found, expected, strict=True)
    )
    return [*problems, *(different if moved or 4 * len(different) >= len(asked) else [])][:1]


def _stops_in(answer: str) -> list[Any]:
    """Returns three values of `until` that occur in an answer: [one], a plain string, [two, one].

    Empty if the answer is too short.
    """
    readable = answer.partition(UNREADABLE)[0]
    if len(readable) < 6:
        return []
    early, late = readable[2:4], readable[4:6]
    pairs = [readable[place : place + 2] for place in range(1, len(readable) - 1)]
    # A string one of whose letters occurs before it: it must not be taken for a list of letters.
    later = (p for p in pairs if min(map(readable.index, p)) < readable.index(p))
    return [[early], next(later, early), [late, early]]


def _cut(text: str, until: Any) -> str:
    """Returns the text before the first of the stop strings `until`: a string or a list of them."""
    stops = [until] if isinstance(until, str) else until
    return min((text.partition(stop)[0] for stop in stops), key=len)


def check_maximum_length(interview: Interview) -> list[str]:
    """Returns a problem if `max_gen_toks` does not limit answers, or changes how they begin."""
    interview.require("generate_until")
    interview.require_real_model()
    short, long = (
        interview.ask("generate_until", [(prompt, settings(count)) for prompt in PROMPTS])
        for count in (2, 12)
    )
    for prompt, answer in zip(PROMPTS, short, strict=True):
        if len(answer.split()) > 4:
            return [f"with max_gen_toks=2, the answer to {shown(prompt)} is {answer!r}."]
    # The last character of a cut answer may be incomplete.
    different = [
        (a, b) for a, b in zip(short, long, strict=True) if not b.startswith(a.rstrip(UNREADABLE))
    ]
    if len(different) > 1:
        one, other = different[0]
        return [
            f"without sampling, the answer with max_gen_toks=2 is {one!r}, which the answer with "
            f"max_gen_toks=12, {other!r}, does not begin with."
        ]
    return []


def check_missing_settings(interview: Interview) -> list[str]:
    """Returns []; raises the model's error if it needs stop strings or `do_sample` in requests."""
    interview.require("generate_until")
    asked: list[tuple[Any, ...]] = [
        (PROMPTS[0], {"max_gen_toks": 4}),
        (PROMPTS[0], {"max_gen_toks": 4, "until": []}),
        (PROMPTS[0], {"max_gen_toks": 4, "until": [], "temperature": 0.0}),
    ]
    interview.ask("generate_until", asked)
    return []


def check_only_the_answer(interview: Interview) -> list[str]:
    """Returns a problem if all answers begin with the prompt, else []."""
    interview.require("generate_until")
    interview.require_real_model()
    answers = interview.ask("generate_until", [(prompt, settings(12)) for prompt in PROMPTS])
    if all(a.strip().startswith(p) for p, a in zip(PROMPTS, answers, strict=True)):
        return [f"answers begin with the prompt: {shown(answers[0])}. Return only what follows it."]
    return []
