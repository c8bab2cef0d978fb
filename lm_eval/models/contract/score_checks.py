"""Checks of whether log-likelihoods are those of one model: sums, limits, greedy flags."""

from __future__ import annotations

import math

from lm_eval.models.contract.interview import Interview, NotCheckedError, shown
from lm_eval.models.contract.texts import (
    CHAINS,
    EXCLUSIVE,
    PROMPTS,
    TEXTS,
    long_text,
    settings,
)
from lm_eval.models.smoke_test import mistake_in

MAX_TRIED_LENGTH = 4096
"""The maximum context length, in tokens, up to which a text that is too long is tried."""
ASSUMED_LENGTH = 2048
"""The context length, in tokens, of a model that has no `max_length`."""
TOLERANCE = 0.1
"""By how much sums of log-likelihoods may differ, besides 2%."""


def _close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=0.02, abs_tol=TOLERANCE)


def check_sums(interview: Interview) -> list[str]:
    """Returns a problem if two parts of a continuation do not sum to the log-likelihood of both."""
    interview.require("loglikelihood")
    interview.require_real_model()
    problems = []
    for context, first, second in CHAINS:
        pairs = [(context, first), (context + first, second), (context, first + second)]
        one, other, whole = (score for score, _ in interview.ask("loglikelihood", pairs))
        if not _close(one + other, whole):
            problems.append(
                f"log P({first!r}) + log P({second!r} after it) is {one:.3f} + {other:.3f} = "
                f"{one + other:.3f}, but log P({first + second!r}) is {whole:.3f}, after "
                f"{context!r}. Scores are summed over tokens, not averaged, and all tokens of the "
                "continuation count."
            )
    return problems[:1]


def check_probabilities(interview: Interview) -> list[str]:
    """Returns a problem if continuations that exclude each other sum to a probability over 1."""
    interview.require("loglikelihood")
    interview.require_real_model()
    context = PROMPTS[0]
    scores = [s for s, _ in interview.ask("loglikelihood", [(context, e) for e in EXCLUSIVE])]
    total = sum(map(math.exp, scores))
    if total > 1.02:
        return [
            f"{len(scores)} different words after {context!r} have a probability of {total:.3g} "
            "together; log-likelihoods are natural logarithms of probabilities."
        ]
    return []


def check_greedy_flag(interview: Interview) -> list[str]:
    """Returns a problem if `is_greedy` contradicts what the model generates greedily, else [].

    Raises `NotCheckedError` if the model generates no text.
    """
    interview.require("loglikelihood", "generate_until")
    interview.require_real_model()
    contexts = [prompt.rstrip() for prompt in PROMPTS]
    answers = interview.ask("generate_until", [(context, settings(8)) for context in contexts])
    own = [
        (context, answer[:count])
        for context, answer in zip(contexts, answers, strict=True)
        for count in {*range(1, min(12, len(answer)) + 1), len(answer)}
        if answer[:count].strip()
    ]
    foreign = [(context, rest) for context in contexts for rest in (" Paris", " 5", " zqxj")]
    flags = [flag for _, flag in interview.ask("loglikelihood", [*own, *foreign])]
    generated = dict(zip(contexts, answers, strict=True))
    for (context, rest), flag in zip([*own, *foreign], flags, strict=True):
        text = generated[context].lstrip()
        if flag and not (text.startswith(rest.strip()) or rest.strip().startswith(text)):
            return [
                f"is_greedy is True for {rest!r} after {context!r}, but greedy decoding gives "
                f"{generated[context]!r}."
            ]
    if not own:
        raise NotCheckedError("the model generates no text")
    if not any(flags[: len(own)]):
        return [
            f"is_greedy is False for all beginnings of what the model itself generates without "
            f"sampling, for example {answers[0]!r} after {contexts[0]!r}."
        ]
    return []


def check_rolling(interview: Interview) -> list[str]:
    """Returns a problem if the log-likelihood of a whole text is not the sum over all its tokens.

    It is compared with the score of the text as a continuation. [] if there is none.
    """
    interview.require("loglikelihood", "loglikelihood_rolling")
    interview.require_real_model()
    lm = interview.lm
    (single,) = interview.ask("loglikelihood_rolling", [("A",)])
    if single == 0:
        return ["the log-likelihood of the text 'A' is 0: its first token is not counted."]
    texts = [text for (text,) in TEXTS]
    encode = getattr(lm, "tok_encode", None)
    if encode is not None and encode("A") != encode("A", add_special_tokens=False):
        raise NotCheckedError(
            "the tokenizer adds special tokens, which loglikelihood and loglikelihood_rolling "
            "count differently"
        )
    rolling = interview.ask("loglikelihood_rolling", [(text,) for text in texts])
    direct = [s for s, _ in interview.ask("loglikelihood", [("", text) for text in texts])]
    # A model may begin a text in another way than an empty context; then differences are compared.
    text = texts[1]
    first, second = text[: text.index(" also")], text[text.index(" also") :]
    (shorter,) = interview.ask("loglikelihood_rolling", [(first,)])
    ((after, _),) = interview.ask("loglikelihood", [(first, second)])
    for text, found, expected in zip(texts, rolling, direct, strict=True):
        if not _close(found, expected) and not _close(rolling[1] - shorter, after):
            return [
                f"the log-likelihood of the text {shown(text)} is {found:.3f}, but as a "
                f"continuation of an empty context it is {expected:.3f}. Every token counts once, "
                "and scores are summed, not averaged."
            ]
    return []


def _too_long(interview: Interview) -> str:
    """Returns a text that is longer than the model's context length.

    Raises `NotCheckedError` if that is more than `MAX_TRIED_LENGTH` tokens.
    """
    lm = interview.lm
    stated = getattr(lm, "max_length", None)
    limit = stated if isinstance(stated, int) and stated > 0 else ASSUMED_LENGTH
    if limit > MAX_TRIED_LENGTH:
        raise NotCheckedError(f"max_length is {limit}; a longer text would take long to score")
    encode = getattr(lm, "tok_encode", None)
    size = 8 * limit
    if encode is not None:
        sample = long_text(2000)
        size = int(1.3 * limit * len(sample) / max(1, len(encode(sample)))) + 200
    return long_text(size)


def check_long_context(interview: Interview) -> list[str]:
    """Returns a problem if a context that is too long is not cut at its beginning and scored."""
    interview.require("loglikelihood")
    text = _too_long(interview)
    ends = (" The last word is one", " The last note is 7?!")
    long = interview.ask("loglikelihood", [(text + end, " and more") for end in ends])
    problems = [
        f"after a long context, the score is {shown(answer)}: {mistake}."
        for answer in long
        if (mistake := mistake_in("loglikelihood", answer))
    ]
    short = interview.ask("loglikelihood", [(end.strip(), " and more") for end in ends])
    if short[0][0] != short[1][0] and long[0][0] == long[1][0] and not interview.is_stand_in:
        problems.append(
            "after a context that is too long, the score does not depend on its last words: the "
            "context is cut at its end. Cut it at its beginning."
        )
    return problems


def check_long_prompt(interview: Interview) -> list[str]:
    """Returns []; raises the error of the model if it does not answer a prompt that is too long."""
    interview.require("generate_until")
    text = _too_long(interview)
    interview.ask("generate_until", [(text, settings(4))])
    return []


def check_long_text(interview: Interview) -> list[str]:
    """Returns problems if the score of a text that is too long is invalid or ignores parts of it.

    Too long is a text with more tokens than the context length.
    """
    interview.require("loglikelihood_rolling")
    text = _too_long(interview)
    begins = "Zebras vexed a quick jury. ", "One two three four five. "
    ends = " A wizard jogs.", " 1 + 1 = 2!"
    parts = [(begins[0], ends[0]), (begins[0], ends[1]), (begins[1], ends[0])]
    asked = [(begin + text + end,) for begin, end in parts]
    found = interview.ask("loglikelihood_rolling", asked)
    problems = [
        f"the log-likelihood of a long text is {shown(answer)}: {mistake}."
        for answer in found
        if (mistake := mistake_in("loglikelihood_rolling", answer))
    ]
    if problems or interview.is_stand_in:
        return problems
    first, second, third, fourth = interview.ask(
        "loglikelihood_rolling", [(part,) for part in (*begins, *ends)]
    )
    if third != fourth and found[0] == found[1]:
        problems.append(
            "the end of a text that is longer than the context length does not change its score; "
            "read it in windows."
        )
    if first != second and found[0] == found[2]:
        problems.append(
            "the beginning of a text that is longer than the context length does not change its "
            "score; read it in windows."
        )
    return problems
