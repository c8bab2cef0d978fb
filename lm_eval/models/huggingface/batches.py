"""Prompts answered some at a time, in halves where that fails; answers in the order of asking."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.company import Company
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.memory import is_out_of_memory, release
from lm_eval.models.huggingface.naming import NotANumberError

Answered = tuple[int, str]
"""The number of a request, and its answer."""
Way = Callable[[list[Prompt]], Iterator[Answered]]


def in_batches(
    way: Way,
    prompts: Iterable[Prompt],
    settings: Generation,
    rows_at_once: Callable[[int], int],
    company: Company,
) -> Iterator[Answered]:
    """Answer prompts, the longest first, as many at once as their length allows."""
    left = deque(prompts)
    while left:
        longest = len(left[0].tokens)
        rows = 1 if company == "none" else rows_at_once(longest + settings.max_gen_toks)
        batch: list[Prompt] = []
        while left and rows > 0 and (company == "any" or len(left[0].tokens) == longest):
            prompt = left.popleft()
            if prompt.rows(settings) > rows:
                prompt, rest = split(prompt, rows)
                left.appendleft(rest)
            batch.append(prompt)
            rows -= prompt.rows(settings)
        yield from in_halves(way, batch, settings)


def in_halves(way: Way, batch: list[Prompt], settings: Generation) -> Iterator[Answered]:
    """Answer a batch; in halves where memory runs out, or to find whose scores are NaN."""
    if len(batch) > 1:
        halves = [batch[: len(batch) // 2], batch[len(batch) // 2 :]]
    elif batch[0].rows(settings) > 1:
        halves = [[part] for part in split(batch[0], batch[0].rows(settings) // 2)]
    else:
        halves = []
    done: set[int] = set()
    try:
        for number, text in way(batch):
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
        for number, text in in_halves(way, half, settings):
            if number not in done:
                yield number, text


def split(prompt: Prompt, count: int) -> tuple[Prompt, Prompt]:
    """A prompt for its first so many requests, and for the others."""
    head, tail = prompt.requests[:count], prompt.requests[count:]
    first = prompt.first + count
    return replace(prompt, requests=head), replace(prompt, requests=tail, first=first)


def in_order(found: Iterable[Answered], repeats: Iterable[tuple[int, ...]]) -> Iterator[Answered]:
    """Answers to one prompt in the order they were asked for, whichever is finished first.

    So those of a run that is cut off are its first repeats, and the others can be told from them.
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
