"""Finds out whether a server samples: whether temperature, seed and number of samples matter.

Some servers accept `temperature` and answer greedily nevertheless. So answers to an open question
are compared: if several with different seeds are all the greedy one, the server does not sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lm_eval.api.instance import Completion, Failure
from lm_eval.models.planned.jobs import Prompt, Sampling
from lm_eval.models.served.dialects.base import Dialect
from lm_eval.models.served.probe_client import ProbeClient

#: Prompts that can be continued in many ways, and how many tokens are asked for. After a prompt
#: with one likely answer, a model that samples repeats the greedy answer, too.
OPEN_TEXT = "Here is a story that nobody has told before. One day"
OPEN_QUESTION = "Write down twenty random words, separated by spaces."
OPEN_TOKENS = 32
#: The number of words, in all answers with different seeds together, that is no coincidence if all
#: are as in the greedy answer: if each had a probability of 2/3, once in 17,000 times.
ENOUGH_WORDS = 24
#: The maximum number of such answers.
MAX_SAMPLES = 3


@dataclass(frozen=True)
class SamplingTrial:
    """What a server does with sampling settings; the fields are those of `Certificate`."""

    samples: bool
    seed: bool | None
    sampling: str


def open_prompt(is_chat: bool) -> Prompt:
    """Returns the prompt whose answers are compared."""
    if is_chat:
        return Prompt(OPEN_QUESTION, messages=[{"role": "user", "content": OPEN_QUESTION}])
    return Prompt(OPEN_TEXT)


def check_sampling(client: ProbeClient, dialect: Dialect) -> SamplingTrial:
    """Returns whether temperature, seed and number of samples have an effect on the answers.

    Sends up to five requests in the dialect.
    """
    prompt = open_prompt(dialect.is_chat)
    settings = Sampling(max_tokens=OPEN_TOKENS, temperature=1.0)

    def answers(seed: int | None, samples: int = 1) -> list[str]:
        """Returns the server's `samples` answers with a seed, or greedy ones if it is None.

        Empty if it refuses the request.
        """
        how = replace(settings, seed=seed, samples=samples)
        if seed is None:
            how = replace(how, temperature=0.0)
        found = client.generate(dialect, prompt, how)
        return [] if isinstance(found, Failure) else [_said(one) for one in found]

    pair = answers(seed=8, samples=2)
    first = answers(seed=7)
    different = [*first, *(pair or answers(seed=8))]  # none with the same seed
    if not different:
        return SamplingTrial(False, False, "unknown")
    if len(set(different)) > 1:
        return SamplingTrial(len(set(pair)) > 1, bool(first) and answers(seed=7) == first, "yes")
    greedy = next(iter(answers(seed=None)), "")
    if greedy != different[0]:
        # It samples, but always the same: several answers to one request are copies.
        return SamplingTrial(False, True, "yes" if greedy else "unknown")
    if len(different) < MAX_SAMPLES and _words(different) < ENOUGH_WORDS:
        different += answers(seed=9)
    if len(set(different)) > 1:
        return SamplingTrial(bool(pair), None, "yes")
    if not greedy.strip():
        return SamplingTrial(bool(pair), None, "unknown")
    sure = _words(different) >= ENOUGH_WORDS
    return SamplingTrial(bool(pair), None, "no" if sure else "perhaps not")


def _words(answers: Sequence[str]) -> int:
    return sum(len(answer.split()) for answer in answers)


def _said(answer: Completion) -> str:
    """Returns an answer and the reasoning before it, which may use up all tokens."""
    return f"{answer.reasoning or ''} {answer.text}"
