"""Splits prompts into batches, splits a failing batch further, and returns repeats in order."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.batch_compatibility import BatchCompatibility
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.memory import free_unused_memory, is_out_of_memory
from lm_eval.models.huggingface.request_errors import NaNScoresError

logger = logging.getLogger(__name__)

Answered = tuple[int, Any]
"""The index of a request, and its answer: the answer itself, or its tokens."""
Generate = Callable[[list[Prompt]], Iterator[Answered]]
"""A function that answers a batch of prompts, in any order."""


def generate_in_batches(
    generate: Generate,
    prompts: Iterable[Prompt],
    settings: Generation,
    answers_per_batch: Callable[[int], int],
    compatibility: BatchCompatibility,
) -> Iterator[Answered]:
    """Yields the request index and the answer for all requests of the prompts.

    The answers are generated in batches. A batch that fails is split (`generate_with_halving`).

    Args:
        generate: answers one batch.
        prompts: the prompts, the longest first.
        settings: the generation settings.
        answers_per_batch: returns how many answers fit into one batch, given the number of tokens
            of prompt and answer together.
        compatibility: which prompts may share a batch: "any", only those of "equal" length, or
            "none".
    """
    left = deque(prompts)
    while left:
        longest = len(left[0].tokens)
        rows = 1 if compatibility == "none" else answers_per_batch(longest + settings.max_gen_toks)
        batch: list[Prompt] = []
        while left and rows > 0 and (compatibility == "any" or len(left[0].tokens) == longest):
            prompt = left.popleft()
            if prompt.num_answers(settings) > rows:
                prompt, rest = split_prompt(prompt, rows)
                left.appendleft(rest)
            batch.append(prompt)
            rows -= prompt.num_answers(settings)
        yield from generate_with_halving(generate, batch, settings)


def generate_with_halving(
    generate: Generate, batch: list[Prompt], settings: Generation
) -> Iterator[Answered]:
    """Yields the request index and the answer for each request of a batch.

    If the batch fails, it is halved and each half tried again. This happens when memory runs out,
    and to find the request whose scores are NaN. A batch of one answer cannot be halved: the error
    is raised. Other errors are raised at once. No answer is yielded twice.
    """
    if len(batch) > 1:
        halves = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    elif batch[0].num_answers(settings) > 1:
        halves = [[part] for part in split_prompt(batch[0], batch[0].num_answers(settings) // 2)]
    else:
        halves = []
    done: set[int] = set()
    try:
        for number, text in generate(batch):
            done.add(number)
            yield number, text
        return
    except (RuntimeError, MemoryError) as error:
        if not halves or not (isinstance(error, NaNScoresError) or is_out_of_memory(error)):
            raise
    free_unused_memory()
    for half in halves:
        if done.issuperset(number for prompt in half for number in prompt.requests):
            continue
        for number, text in generate_with_halving(generate, half, settings):
            if number not in done:
                yield number, text


def generate_within_memory(
    generate: Callable[[list[Prompt], int], Iterator[Answered]],
    prompts: list[Prompt],
    settings: Generation,
    max_rows: int,
) -> Iterator[Answered]:
    """Yields the request index and the answer for each request, at most `max_rows` at a time.

    If memory runs out, the remaining requests are answered with half as many at a time. If scores
    are NaN, the request that causes it is searched for (`generate_with_halving`). No answer is
    yielded twice.

    Args:
        generate: answers all given prompts, with at most so many answers at a time.
        prompts: the prompts.
        settings: the generation settings.
        max_rows: the maximum number of answers at a time.
    """
    done: set[int] = set()
    while True:
        left = _unanswered(prompts, settings, max_rows, done)
        if not left:
            return
        try:
            for number, text in generate(left, max_rows):
                done.add(number)
                yield number, text
            return
        except NaNScoresError:
            break
        except (RuntimeError, MemoryError) as error:
            if max_rows == 1 or not is_out_of_memory(error):
                raise
        max_rows //= 2
        logger.warning(
            "Memory ran out. The run continues with at most %d answers at a time.", max_rows
        )
        free_unused_memory()
    left = _unanswered(prompts, settings, max_rows, done)
    yield from generate_with_halving(lambda batch: generate(batch, max_rows), left, settings)


def _unanswered(
    prompts: Iterable[Prompt], settings: Generation, max_rows: int, done: set[int]
) -> list[Prompt]:
    """Returns prompts for the requests that are not `done`.

    Each of them has at most `max_rows` answers.
    """
    left = []
    for prompt in prompts:
        if not settings.sampled:
            if not done.issuperset(prompt.requests):
                left.append(prompt)
            continue
        rest: Prompt | None = prompt
        while rest is not None:
            part, rest = rest, None
            begun = [n for n, request in enumerate(part.requests) if request not in done]
            if not begun:
                break
            if begun[0]:
                _, part = split_prompt(part, begun[0])
            after = [n for n, request in enumerate(part.requests) if request in done]
            count = min([max_rows, len(part.requests), *after])
            if count < len(part.requests):
                part, rest = split_prompt(part, count)
            left.append(part)
    return left


def split_prompt(prompt: Prompt, count: int) -> tuple[Prompt, Prompt]:
    """Returns one prompt for the first `count` requests of `prompt`, and one for the others."""
    head, tail = prompt.requests[:count], prompt.requests[count:]
    numbers = [prompt.repeat(place) for place in range(len(prompt.requests))]
    first, others = tuple(numbers[:count]), tuple(numbers[count:])
    return replace(prompt, requests=head, repeats=first), replace(
        prompt, requests=tail, repeats=others
    )


def repeats_in_order(
    found: Iterable[Answered], repeats: Iterable[tuple[int, ...]]
) -> Iterator[Answered]:
    """Yields answers such that those to the repeats of a prompt come in the order of the requests.

    An interrupted run has then stored the first repeats, so it is known which ones are missing.

    Args:
        found: the answers, in any order.
        repeats: for each prompt, the indices of its requests.
    """
    group_of = {number: group for group in repeats for number in group}
    yielded: Counter[tuple[int, ...]] = Counter()
    waiting: dict[int, Any] = {}
    for finished, text in found:
        waiting[finished] = text
        group = group_of[finished]
        for number in group[yielded[group] :]:
            if number not in waiting:
                break
            yielded[group] += 1
            yield number, waiting.pop(number)
