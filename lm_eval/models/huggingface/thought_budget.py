"""Generates in two steps, so that thoughts are cut after a number of tokens (`thinking_budget`)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.thinking import check_answer_room

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
        check_answer_room(self.tokens, len(self.mark), settings.max_gen_toks)
        return replace(settings, max_gen_toks=self.tokens)

    def rest(self, settings: Generation, added: int) -> Generation:
        """Returns the settings of the second step, if `added` tokens of the mark were appended."""
        return replace(settings, max_gen_toks=settings.max_gen_toks - self.tokens - added)

    def continued(self, prompt: Prompt, number: int, tokens: list[int]) -> Prompt:
        """Returns the prompt that continues the answer to request `number`, with its `tokens`."""
        place = prompt.requests.index(number)
        # Random numbers depend on the text. With that of the first step, an answer could be drawn
        # with the same numbers as the thought before it.
        return Prompt(
            f"{prompt.text} (after {self.tokens} tokens)",
            [*prompt.tokens, *tokens],
            (number,),
            (prompt.repeat(place),),
        )


def generate_within_budget(
    budget: ThoughtBudget,
    settings: Generation,
    prompts: list[Prompt],
    ended: Callable[[list[int]], bool],
    first_step: Callable[[Generation, list[Prompt]], Tokens],
    second_step: Callable[[Generation, list[Prompt]], Tokens],
) -> Iterator[tuple[int, list[int], int, bool]]:
    """Yields the request index and the tokens of each answer, with thoughts that are cut.

    The third item is the number of tokens of the mark that was appended: 0 unless a thought was
    cut. The last is whether the answer has the maximum length. An answer does not depend on the
    other prompts.

    Args:
        budget: when a thought is cut.
        settings: the generation settings; `max_gen_toks` counts the thought, the mark and the
            answer.
        prompts: the prompts of one batch.
        ended: returns whether the tokens of an answer contain the mark, so that the thought ended
            by itself.
        first_step: generates up to the budget, with stop conditions that apply in thoughts.
        second_step: continues the cut answers.
    """
    prompt_of = {number: prompt for prompt in prompts for number in prompt.requests}
    # Answers that are continued, by the number of tokens that were appended to them.
    cut: dict[int, dict[tuple[int, ...], Prompt]] = {}
    begun: dict[int, list[int]] = {}
    for number, tokens in first_step(budget.first(settings), prompts):
        if len(tokens) < budget.tokens:
            yield number, tokens, 0, False
            continue
        mark = () if ended(tokens) else budget.mark
        begun[number] = [*tokens, *mark]
        prompt = prompt_of[number]
        following = budget.continued(prompt, number, begun[number])
        # Greedy answers to the requests of a prompt are the same, and are continued once.
        key = (number,) if settings.sampled else prompt.requests
        alike = cut.setdefault(len(mark), {})
        if key in alike:
            following = replace(
                alike[key],
                requests=(*alike[key].requests, number),
                repeats=(*alike[key].repeats, *following.repeats),
            )
        alike[key] = following
    for added, alike in cut.items():
        rest = budget.rest(settings, added)
        ordered = sorted(alike.values(), key=lambda one: (-len(one.tokens), one.tokens))
        for number, tokens in second_step(rest, ordered):
            yield number, [*begun[number], *tokens], added, len(tokens) >= rest.max_gen_toks
