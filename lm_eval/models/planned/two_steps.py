"""Generates in two steps, so that thoughts are cut after a number of tokens (`thinking_budget`)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lm_eval.api.instance import Completion, Failure
from lm_eval.models.planned.jobs import GenerationJob, Prompt
from lm_eval.models.planned.repeats import seed_of_prompt
from lm_eval.models.thinking import check_answer_room, joined

Generated = Sequence[tuple[GenerationJob, "list[Any] | Failure"]]
"""Prompts with their answers."""


@dataclass(frozen=True)
class TwoSteps:
    """How an answer is generated in two steps.

    Attributes:
        budget: after how many tokens a thought is cut.
        mark: the string that ends a thought, which is appended then.
        encode: returns the tokens of a text, without special tokens; None if prompts are sent as
            text.
    """

    budget: int
    mark: str
    encode: Callable[[str], list[int]] | None = None

    def first(self, job: GenerationJob) -> GenerationJob:
        """Returns the job that generates the thought, and the answer if there is room for it.

        Raises `ConfigError` if there is no room for an answer after a thought.
        """
        check_answer_room(self.budget, self._mark_length, job.sampling.max_tokens)
        return replace(job, sampling=replace(job.sampling, max_tokens=self.budget))

    def second(self, job: GenerationJob, found: Completion) -> GenerationJob | None:
        """Returns the job that continues an answer; None if it is complete.

        `job` is the job that was asked for, and `found` what its first step has generated. The
        answer is complete unless it has used up the budget. The second step has a seed of its own,
        so that the answer is not drawn with the random numbers of the thought.
        """
        if not self._used_up(found):
            return None
        text = f"{found}{self.added(found)}"
        tokens = job.prompt.tokens
        if tokens is not None and self.encode is not None:
            tokens = [*tokens, *self.encode(text)]
        left = job.sampling.max_tokens - self.budget
        left -= self._mark_length if self.added(found) else 0
        seed = job.sampling.seed
        seed = None if seed is None else seed_of_prompt(seed, text)
        sampling = replace(job.sampling, max_tokens=left, seed=seed, after_thought=True)
        return replace(job, prompt=Prompt(job.prompt.text + text, tokens), sampling=sampling)

    def added(self, found: Completion) -> str:
        """Returns the mark if the thought was cut, and "" if it ended by itself."""
        return "" if self.mark in found else self.mark

    def join(self, found: Completion, rest: Completion) -> Completion:
        """Returns the whole answer: what both steps have generated, and the mark between them."""
        return joined(found, self.added(found), rest)

    def _used_up(self, found: Completion) -> bool:
        """Returns whether the first step has generated as many tokens as it may.

        If the server tells neither why the answer ended nor how long it is, an answer without the
        mark counts as a thought that was cut.
        """
        if found.finish_reason is not None:
            return found.finish_reason == "length"
        if found.tokens is not None:
            return found.tokens >= self.budget
        return self.mark not in found

    @property
    def _mark_length(self) -> int:
        """How many tokens the mark has; 0 if it is not known."""
        return 0 if self.encode is None else len(self.encode(self.mark))


def generate_in_two_steps(
    generate: Callable[[Iterable[GenerationJob | None]], Iterator[Generated]],
    jobs: Iterable[GenerationJob | None],
    steps: TwoSteps,
) -> Iterator[Generated]:
    """Yields lists of pairs (job, its answers) as `generate` does, with thoughts that are cut.

    A cut answer is continued at once, before answers that have not begun. Jobs must ask for one
    answer each.

    Args:
        generate: yields the answers to jobs as they are finished (`EngineLM.generate`).
        jobs: the jobs; an item None means that no job is ready yet.
        steps: how an answer is cut and continued.
    """
    waiting: deque[GenerationJob] = deque()
    #: By the id of a job that was passed on: the job itself, the one asked for, and its first step.
    open_jobs: dict[int, tuple[GenerationJob, GenerationJob, Completion | None]] = {}

    def stream() -> Iterator[GenerationJob | None]:
        source = iter(jobs)
        exhausted = False
        while True:
            if waiting:
                yield waiting.popleft()
                continue
            if exhausted:
                if not open_jobs:
                    return
                yield None  # others may have to be continued
                continue
            try:
                job = next(source)
            except StopIteration:
                exhausted = True
                continue
            if job is None:
                yield None
                continue
            begun = steps.first(job)
            open_jobs[id(begun)] = begun, job, None
            yield begun

    for batch in generate(stream()):
        finished: list[tuple[GenerationJob, list[Any] | Failure]] = []
        for done, answers in batch:
            _, job, before = open_jobs.pop(id(done))
            if isinstance(answers, Failure):
                finished.append((job, answers))
                continue
            answer = answers[0]
            following = steps.second(job, answer) if before is None else None
            if following is not None:
                open_jobs[id(following)] = following, job, answer
                waiting.append(following)
            else:
                finished.append((job, [answer if before is None else steps.join(before, answer)]))
        if finished:
            yield finished
