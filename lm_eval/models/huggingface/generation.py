"""The built-in generation loop: answers many prompts at once, each as if it were the only one.

Prompts of similar length share a batch, and their common prefixes are computed once
(`KeyValueCache.prefill`). Finished answers leave the batch. Each answer is sampled with its own
random numbers, so that it does not depend on the other requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.api.usage import Usage
from lm_eval.models.conventions import Generation, answer_rng
from lm_eval.models.huggingface.attention import AttentionKernels
from lm_eval.models.huggingface.kv_cache import KeyValueCache
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.request_errors import NaNScoresError
from lm_eval.models.huggingface.token_choice import choose_tokens
from lm_eval.models.partial_answers import Decode, PartialAnswers, StopConditions

NAN_TOKEN = -1
"""Placeholder for a token whose logits were NaN."""
LARGEST_DRAW = np.nextafter(np.float32(1), np.float32(0))
"""The largest random number that is less than 1."""
STEPS_PER_CHECK = {"cpu": 1, "other": 4}
"""Number of tokens generated between checks for finished answers. A check synchronizes the GPU."""


@dataclass(frozen=True)
class Prompt:
    """A context, and the requests that are answered from it."""

    text: str
    tokens: list[int]
    requests: tuple[int, ...]
    """The indices of the requests with this context: the repeats of a request, and equal
    requests."""
    repeats: tuple[int, ...] = ()
    """The repeat number of each request, which its random numbers depend on; empty for 0, 1, 2 …"""

    def repeat(self, place: int) -> int:
        """Returns the repeat number of the request at an index of `requests`."""
        return self.repeats[place] if self.repeats else place

    def num_answers(self, settings: Generation) -> int:
        """Returns how many answers are generated: one per request if sampled, otherwise one."""
        return len(self.requests) if settings.sampled else 1


class WrittenAnswer(NamedTuple):
    """A finished answer, as a generation loop yields it."""

    tokens: list[int]
    """Its tokens before the one that ended it; the last may complete a stop string."""
    text: str | None = None
    """The text of all its tokens, if the loop has decoded it. None of them ends the answer then."""


# As a decorator, it applies while this runs, not while the caller has an answer.
@torch.inference_mode()  # type: ignore[untyped-decorator]
def generate(
    network: Network,
    decode: Decode,
    prompts: Sequence[Prompt],
    settings: Generation,
    stop_conditions: StopConditions,
    *,
    seed: int,
    device: torch.device,
    max_tokens: int,
    attention_kernels: AttentionKernels,
    usage: Usage,
) -> Iterator[tuple[int, WrittenAnswer]]:
    """Yields the request index and the answer to each request, as soon as it is finished.

    Without sampling, all requests of a prompt get the same answer. Raises `NaNScoresError` if
    logits are NaN, because NaN spreads among prompts that are read together.

    Args:
        network: the model.
        decode: returns the text of tokens.
        prompts: the prompts of one batch.
        settings: the generation settings.
        stop_conditions: what ends an answer.
        seed: the seed for sampling.
        device: where tokens are put.
        max_tokens: the maximum number of prompt tokens in one forward pass.
        attention_kernels: the attention kernels that may be used.
        usage: counts the tokens.
    """
    answered = [p.requests[: p.num_answers(settings)] for p in prompts]
    owners = [(p, r) for p in range(len(prompts)) for r in range(len(answered[p]))]
    rows_of = [[i for i, (p, _) in enumerate(owners) if p == q] for q in range(len(prompts))]
    numbers = random_draws([(prompts[p], r) for p, r in owners], settings, seed)
    draws = None if numbers is None else torch.from_numpy(numbers).to(device)
    answers = PartialAnswers(decode, stop_conditions, len(owners), settings.max_gen_toks)
    steps_per_check = STEPS_PER_CHECK.get(device.type, STEPS_PER_CHECK["other"])
    lengths = [len(prompts[p].tokens) for p, _ in owners]
    cache = KeyValueCache(lengths, settings.max_gen_toks, attention_kernels)
    tokens_of = [prompt.tokens for prompt in prompts]
    logits = cache.prefill(network, tokens_of, rows_of, max_tokens, device)
    usage.count_prompt(
        sum(len(p.tokens) * len(p.requests) for p in prompts), cache.prompt_tokens_computed
    )
    new: list[Tensor] = []
    for step in range(settings.max_gen_toks):
        token, is_number = choose_tokens(
            logits, settings, None if draws is None else draws[:, step]
        )
        new.append(torch.where(is_number, token, NAN_TOKEN))
        if len(new) == steps_per_check or step + 1 == settings.max_gen_toks:
            before = list(answers.unfinished)
            found = torch.stack(new, dim=1).cpu().numpy()
            if (found == NAN_TOKEN).any():
                p, r = owners[before[int((found == NAN_TOKEN).any(axis=1).argmax())]]
                raise NaNScoresError(answered[p][r])
            usage.count_generated(found.size)
            finished = answers.add(found)
            new = []
            for i, _ in finished:
                p, r = owners[i]
                written = answers.tokens(i)
                for request in (answered[p][r],) if settings.sampled else prompts[p].requests:
                    usage.count_answer(len(written))
                    yield request, WrittenAnswer(written)
            if not answers.unfinished:
                return
            if finished:
                kept = [place for place, i in enumerate(before) if i in set(answers.unfinished)]
                cache.keep(kept)
                chosen = torch.tensor(kept, device=device)
                token = token[chosen]
                draws = None if draws is None else draws[chosen]
        logits = cache.step(network, token[:, None])


def random_draws(answers: Iterable[tuple[Prompt, int]], settings: Generation, seed: int) -> Any:
    """Returns a random number in [0, 1) for each token of each answer, as (answers, tokens).

    Returns None without sampling. An answer is a prompt and the answer's number among those of the
    prompt, from 0. Its numbers are seeded with `seed`, the prompt, the repeat and the settings, so
    they do not depend on the batch.
    """
    if not settings.sampled:
        return None
    drawn = [
        answer_rng(seed, prompt.text, settings, prompt.repeat(number)).random(settings.max_gen_toks)
        for prompt, number in answers
    ]
    # Numbers close to 1 are rounded to 1 in float32, and no cumulative probability exceeds 1.
    return np.minimum(np.array(drawn, dtype=np.float32), LARGEST_DRAW)
