"""Generates answers by calling a function from tokens to logits once per token."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from lm_eval.api.instance import Completion, Failure
from lm_eval.api.usage import Usage
from lm_eval.models.conventions import Generation
from lm_eval.models.logits_adapter.function import LogitsFunction
from lm_eval.models.logits_adapter.logits import rows_at
from lm_eval.models.partial_answers import Decode, PartialAnswers, StopConditions
from lm_eval.models.planned.jobs import GenerationJob, Sampling
from lm_eval.models.sampling import choose_tokens

Answer = list[Completion] | Failure


def tokens_of(job: GenerationJob) -> Sequence[int]:
    """Returns the tokens of a prompt."""
    return job.prompt.tokens or ()


def generate(
    function: LogitsFunction,
    decode: Decode,
    jobs: Sequence[GenerationJob],
    stop_conditions: Callable[[Sampling], StopConditions],
    usage: Usage,
) -> Iterator[tuple[int, Answer, int]]:
    """Yields the index, the answer and its number of tokens of each job, as it is finished.

    Args:
        function: the model.
        decode: returns the text of tokens.
        jobs: prompts with the same generation settings, except the seed.
        stop_conditions: returns what ends an answer.
        usage: its count of generated tokens is updated at every step.
    """
    sampling = jobs[0].sampling
    if not sampling.max_tokens:
        yield from ((place, [Completion("", None, "length")], 0) for place in range(len(jobs)))
        return
    settings = _generation(sampling)
    stops = stop_conditions(sampling)
    answers = PartialAnswers(decode, stops, len(jobs), sampling.max_tokens)
    draws = None
    if sampling.seed is not None:
        generators = (np.random.default_rng(job.sampling.seed) for job in jobs)
        draws = np.array([generator.random(sampling.max_tokens) for generator in generators])
    rows = [list(tokens_of(job)) for job in jobs]
    for step in range(sampling.max_tokens):
        left = answers.unfinished
        read = [rows[place] for place in left]
        logits = rows_at(function(read), np.array([len(row) - 1 for row in read]))
        chosen = choose_tokens(logits, settings, None if draws is None else draws[left, step])
        usage.count_generated(len(left))
        broken = [place for place, row in zip(left, logits, strict=True) if np.isnan(row).any()]
        for place, token in zip(left, chosen.tolist(), strict=True):
            rows[place].append(token)
        for place, text in answers.add(chosen[:, None]):
            if place not in broken:
                written = answers.tokens(place)
                # The longest answer, unless it ends with the end-of-text token or a stop string.
                reached = len(written) == sampling.max_tokens and text == decode(written)
                yield place, [Completion(text, None, "length" if reached else "stop")], len(written)
        for place in broken:
            yield place, Failure("the logits are NaN"), 0
        answers.drop(broken)
        if not answers.unfinished:
            return


def _generation(sampling: Sampling) -> Generation:
    """Returns generation settings in the form that `choose_tokens` takes."""
    top_p = sampling.others.get("top_p")
    return Generation(
        until=tuple(sampling.until),
        max_gen_toks=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=max(0, int(sampling.others.get("top_k") or 0)),
        top_p=1.0 if top_p is None else float(top_p),
    )
