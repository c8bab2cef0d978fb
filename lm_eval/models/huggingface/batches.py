"""Answers prompts in batches, halves a batch that fails, and returns repeats in order."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.batch_compatibility import BatchCompatibility
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.memory import is_out_of_memory, release
from lm_eval.models.huggingface.naming import NotANumberError

Answered = tuple[int, str]
"""The number of a request, and its answer."""
Generate = Callable[[list[Prompt]], Iterator[Answered]]
"""Answers a batch of prompts, in any order."""


def in_batches(
    generate: Generate,
    prompts: Iterable[Prompt],
    settings: Generation,
    rows_at_once: Callable[[int], int],
    compatibility: BatchCompatibility,
) -> Iterator[Answered]:
    """Answers prompts, longest first, as many at once as their length and the model allow."""
    left = deque(prompts)
    while left:
        longest = len(left[0].tokens)
        rows = 1 if compatibility == "none" else rows_at_once(longest + settings.max_gen_toks)
        batch: list[Prompt] = []
        while left and rows > 0 and (compatibility == "any" or len(left[0].tokens) == longest):
            prompt = left.popleft()
            if prompt.rows(settings) > rows:
                prompt, rest = split(prompt, rows)
                left.appendleft(rest)
            batch.append(prompt)
            rows -= prompt.rows(settings)
        yield from in_halves(generate, batch, settings)


def in_halves(generate: Generate, batch: list[Prompt], settings: Generation) -> Iterator[Answered]:
    """Answers a batch; halves it when memory runs out, or to find the request with NaN scores."""
    if len(batch) > 1:
        halves = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    elif batch[0].rows(settings) > 1:
        halves = [[part] for part in split(batch[0], batch[0].rows(settings) // 2)]
    else:
        halves = []
    done: set[int] = set()
    try:
        for number, text in generate(batch):
            done.add(number)
            yield number, text
        return
    except (RuntimeError, MemoryError) as error:
        if not halves or not (isinstance(error, NotANumberError) or is_out_of_memory(error)):
            raise
    release()
    for half in halves:
        if done.issuperset(number for prompt in half for number in prompt.requests):
            continue
        for number, text in in_halves(generate, half, settings):
            if number not in done:
                yield number, text


def split(prompt: Prompt, count: int) -> tuple[Prompt, Prompt]:
    """Splits a prompt into one for its first `count` requests and one for the others."""
    head, tail = prompt.requests[:count], prompt.requests[count:]
    first = prompt.first + count
    return replace(prompt, requests=head), replace(prompt, requests=tail, first=first)


def in_order(found: Iterable[Answered], repeats: Iterable[tuple[int, ...]]) -> Iterator[Answered]:
    """Yields answers to the repeats of a prompt in the order of the requests.

    So an interrupted run has the first repeats, and the missing ones are known.
    """
    group_of = {number: group for group in repeats for number in group}
    told: Counter[tuple[int, ...]] = Counter()
    waiting: dict[int, str] = {}
    for finished, text in found:
        waiting[finished] = text
        group = group_of[finished]
        for number in group[told[group] :]:
            if number not in waiting:
                break
            told[group] += 1
            yield number, waiting.pop(number)
