"""Generates in two steps, so that thoughts are cut after a number of tokens (`thinking_budget`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lm_eval.errors import ConfigError
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.generation import Prompt

Tokens = Iterator[tuple[int, list[int]]]
"""Indices of requests with the tokens of their answers, as soon as they are finished."""


@dataclass(frozen=True)
class ThoughtBudget:
    """After how many `tokens` a thought is cut, and the tokens of the `mark` that then ends it."""

    tokens: int
    mark: tuple[int, ...]

    def first(self, settings: Generation) -> Generation:
        """Returns the settings of the first step: at most as many tokens as a thought may have.

        Raises `ConfigError` if there is no room for an answer after it.
        """
        if settings.max_gen_toks <= self.tokens + len(self.mark):
            raise ConfigError(
                f"thinking_budget={self.tokens} leaves no room for an answer: max_gen_toks is "
                f"{settings.max_gen_toks}, which counts thought and answer together. Raise it "
                f"with --gen_kwargs max_gen_toks={2 * self.tokens}."
            )
        return replace(settings, max_gen_toks=self.tokens)

    def ended(self, tokens: list[int]) -> bool:
        """Returns whether the tokens contain the mark: the thought ended by itself."""
        size = len(self.mark)
        return any(tuple(tokens[i : i + size]) == self.mark for i in range(len(tokens)))


def generate_within_budget(
    budget: ThoughtBudget,
    settings: Generation,
    prompts: list[Prompt],
    first_step: Callable[[Generation, list[Prompt]], Tokens],
    second_step: Callable[[Generation, list[Prompt]], Tokens],
) -> Iterator[tuple[int, list[int], int, bool]]:
    """Yields the request index and the tokens of each answer, with thoughts that are cut.

    The third item is the number of tokens of the mark that was appended: 0 unless a thought was
    cut. The last is whether the answer has the maximum length.

    Args:
        budget: when a thought is cut.
        settings: the generation settings; `max_gen_toks` counts the thought, the mark and the
            answer.
        prompts: the prompts of one batch.
        first_step: generates up to the budget, with stop conditions that apply in thoughts.
        second_step: continues the cut answers.
    """
    prompt_of = {number: prompt for prompt in prompts for number in prompt.requests}
    cut: dict[tuple[int, ...], Prompt] = {}
    begun: dict[int, tuple[list[int], int]] = {}
    for number, tokens in first_step(budget.first(settings), prompts):
        if len(tokens) < budget.tokens:
            yield number, tokens, 0, False
            continue
        mark = () if budget.ended(tokens) else budget.mark
        begun[number] = [*tokens, *mark], len(mark)
        prompt = prompt_of[number]
        repeat = prompt.requests.index(number)
        # Greedy answers to the requests of a prompt are the same, and are continued once.
        key = (prompt.requests[0], -1) if not settings.sampled else (number, repeat)
        if key in cut:
            numbers = (*cut[key].repeats, prompt.repeat(repeat))
            cut[key] = replace(cut[key], requests=(*cut[key].requests, number), repeats=numbers)
        else:
            cut[key] = replace(
                prompt,
                tokens=[*prompt.tokens, *begun[number][0]],
                requests=(number,),
                repeats=(prompt.repeat(repeat),),
            )
    if cut:
        longest = max(size for _, size in begun.values())
        rest = replace(settings, max_gen_toks=settings.max_gen_toks - budget.tokens - longest)
        following = sorted(cut.values(), key=lambda one: (-len(one.tokens), one.tokens))
        for number, tokens in second_step(rest, following):
            before, size = begun[number]
            yield number, [*before, *tokens], size, len(tokens) >= rest.max_gen_toks
