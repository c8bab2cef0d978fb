"""Continuous batching: which waiting prompts are read next, and what their answers get.

An answer gets a row of the batch and pages of the key-value cache. Prompts wait in the order in
which their tokens are sorted, so that those with a common prefix are read together and share pages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from lm_eval.engine.plan import Batch, Ints, SortedSequences, StepwisePlan
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.pages import PAGE, OutOfPagesError, PagePool
from lm_eval.models.partial_answers import GrowingAnswer


@dataclass(eq=False)
class Row:
    """An answer in the batch."""

    prompt: Prompt
    number: int
    """Its number among the answers to the prompt."""
    requests: tuple[int, ...]
    """The requests that get this answer."""
    answer: GrowingAnswer
    pages: list[int]
    full_pages: int
    """How many leading pages are full pages of the prompt."""
    position: int
    """The position of the token that the next step reads."""
    chosen: int = 1
    """How many tokens were chosen by the steps launched so far."""
    ended: bool = False

    def advance(self, steps: int) -> None:
        """Counts steps that were launched."""
        self.position += steps
        self.chosen += steps

    def end(self) -> None:
        """Marks the answer as ended: tokens that are still to come are dropped."""
        self.ended = True

    def give_pages(self) -> list[int]:
        """Returns its pages, which it does not have any longer."""
        pages, self.pages = self.pages, []
        return pages


class Admitted(NamedTuple):
    """A waiting prompt whose answers have got rows and pages."""

    prompt: Prompt
    rows: list[Row]
    writes: list[tuple[int, int, int]]
    """Positions of the prompt that are not stored yet: the first, which begins a page, how many,
    and the page that will hold them."""
    is_again: bool
    """Whether the prompt was read before, for answers that are begun again."""


class WaitingPrompts:
    """The prompts that were not read yet, and those of answers that are begun again after them."""

    def __init__(
        self,
        prompts: Sequence[Prompt],
        settings: Generation,
        begin_answer: Callable[[], GrowingAnswer],
        *,
        max_rows: int,
        max_tokens: int,
    ) -> None:
        """Sorts the prompts.

        Args:
            prompts: the prompts.
            settings: the generation settings.
            begin_answer: returns an answer without tokens.
            max_rows: the maximum number of answers at a time.
            max_tokens: the maximum number of prompt tokens in one forward pass.
        """
        self._settings = settings
        self._begin_answer = begin_answer
        self._max_rows = max_rows
        self._max_tokens = max_tokens
        self._prompts = list(prompts)
        self._plan = self._planned()
        self._again: list[Prompt] = []
        self._are_again = False
        """Whether the prompts are those of answers that are begun again."""

    def _planned(self) -> StepwisePlan:
        tokens = [prompt.tokens for prompt in self._prompts]
        return StepwisePlan(SortedSequences.of(tokens, [1] * len(tokens)))

    def __bool__(self) -> bool:
        return self._plan.taken < len(self._prompts) or bool(self._again)

    def begin_again(self, row: Row) -> None:
        """Lets the prompt of an answer wait until the answer is begun again."""
        prompt = row.prompt
        numbers = (prompt.repeat(row.number),) if self._settings.sampled else prompt.repeats
        self._again.append(Prompt(prompt.text, prompt.tokens, row.requests, numbers))

    def pages_wanted(self, answer_tokens: int) -> int:
        """Returns how many pages are used at most if neighbors in sorted order run together.

        `answer_tokens` is the number of tokens of an answer for which there must be room.
        """
        ordered = self._plan.ordered
        rows = np.array([self._prompts[i].num_answers(self._settings) for i in ordered.order])
        per_answer = -(-answer_tokens // PAGE) + 1
        own = (ordered.lengths - ordered.common) // PAGE + 1 + rows * per_answer
        # The most pages of any neighbors with `max_rows` answers in all.
        upto, last = np.cumsum(own), np.cumsum(rows)
        first = np.searchsorted(last, last - self._max_rows, side="right")
        most = int((upto - np.append(0, upto)[np.minimum(first, len(upto))]).max())
        return most + int(ordered.lengths.max()) // PAGE + 2 + self._max_rows

    def admit(self, pool: PagePool, others: int) -> list[Admitted]:
        """Returns the next prompts that fit into one forward pass, with rows that have pages.

        They still wait until they are taken. The result may be empty. Pages are taken from `pool`;
        `others` is the number of rows in use.
        """
        if self._plan.taken == len(self._prompts) and self._again:
            self._prompts, self._again, self._are_again = self._again, [], True
            self._plan = self._planned()
        ordered, taken = self._plan.ordered, self._plan.taken
        fitting, answers = 0, 0
        for index in ordered.order[taken:]:
            answers += self._prompts[index].num_answers(self._settings)
            if others + answers > self._max_rows:
                break
            fitting += 1
        admitted: list[Admitted] = []
        for place in range(taken, taken + self._plan.next_size(self._max_tokens, fitting)):
            prompt = self._prompts[ordered.order[place]]
            try:
                admitted.append(self._allocate(pool, prompt, ordered.tokens_of(place), others))
            except OutOfPagesError:
                break
            others += len(admitted[-1].rows)
        return admitted

    def _allocate(self, pool: PagePool, prompt: Prompt, tokens: Ints, others: int) -> Admitted:
        """Returns a prompt with new rows for its answers, which have the pages to read it.

        Raises `OutOfPagesError` if there are too few free pages; then nothing has changed. `tokens`
        are those of the prompt, and `others` is the number of rows in use.
        """
        count, length = prompt.num_answers(self._settings), len(tokens)
        full, unwritten = pool.share(tokens)
        # Every row, new or old, can then grow by a page at once.
        if pool.free < 2 * count + others:
            pool.release(full)
            raise OutOfPagesError("too few pages are free for another prompt")
        pool.add_users(full, count - 1)
        writes = [(n * PAGE, PAGE, full[n]) for n in unwritten]
        rows = []
        for number in range(count):
            pages = [*full, pool.take()]
            if length % PAGE:
                writes.append((len(full) * PAGE, length % PAGE, pages[-1]))
            requests = (prompt.requests[number],) if self._settings.sampled else prompt.requests
            answer = self._begin_answer()
            rows.append(Row(prompt, number, requests, answer, pages, len(full), length))
        return Admitted(prompt, rows, writes, self._are_again)

    def take(self, count: int) -> Batch:
        """Returns the next `count` prompts, which were admitted, as a prefix tree.

        They do not wait any longer.
        """
        return self._plan.take(self._max_tokens, count)
