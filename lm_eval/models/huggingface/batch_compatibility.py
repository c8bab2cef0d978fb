"""Finds out, by a trial, which prompts transformers can continue in one batch.

In a batch, shorter prompts are padded on the left. Recurrent models may include the padding in
their state, custom classes may ignore the mask, and some code mixes up the rows of a batch. An
answer would then depend on the other requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from lm_eval.models.huggingface.check import TOLERANCE
from lm_eval.models.huggingface.decoding_check import describe_error, logprob_difference
from lm_eval.models.huggingface.memory import is_out_of_memory

logger = logging.getLogger(__name__)

BatchCompatibility = Literal["any", "equal", "none"]
"""Which prompts may share a batch: prompts of any lengths, only prompts of equal length, or none
(each prompt has a batch of its own)."""
ContinueBatch = Callable[[Tensor, Tensor], Tensor]
"""A function from tokens (B, T) and their mask to what follows: logits (B, S, V), or tokens (B,
S)."""

TRIAL_PROMPT_TOKENS = 24
"""Maximum number of tokens that are read in the trial."""
TRIAL_NEW_TOKENS = 6
"""Number of tokens that are generated in the trial."""


def find_compatibility(
    continue_batch: ContinueBatch,
    long: list[int],
    short: list[int],
    device: torch.device,
    dtype: torch.dtype,
    name: str,
) -> BatchCompatibility:
    """Returns which prompts may share a batch: "any", "equal" or "none".

    "equal" means only prompts of equal length, "none" that each prompt needs a batch of its own.
    The continuation of `short` in a batch with another prompt is compared with that of `short`
    alone. Logs a warning if not all prompts may share a batch.

    Args:
        continue_batch: continues a batch of prompts.
        long: the tokens of a prompt that is at least as long as `short`.
        short: the tokens of the prompt that is padded.
        device: where the model reads its tokens.
        dtype: the dtype in which the model computes, which determines the tolerance.
        name: the name of the model class, for the warning.
    """
    long, short = long[-TRIAL_PROMPT_TOKENS:], short[-TRIAL_PROMPT_TOKENS // 2 :]

    def difference(other: list[int]) -> str:
        return batching_difference(continue_batch, other, short, device, dtype)

    problem = difference(long if len(long) > len(short) else [*long, *long])
    if not problem:
        return "any"
    worse = difference(long[-len(short) :])
    if worse:
        logger.warning(
            "Prompts are continued one by one on %s, because batching prompts would change the "
            "answers: %s.",
            name,
            worse,
        )
        return "none"
    logger.warning(
        "Only prompts of equal length are continued in one batch on %s, because batching prompts "
        "of different lengths would change the answers: %s.",
        name,
        problem,
    )
    return "equal"


def next_tokens(generate: Callable[..., Tensor], tokens: Tensor, mask: Tensor) -> Tensor:
    """Returns the tokens (B, S) by which `generate`, a subclass's `_model_generate`, continues.

    They are at most `TRIAL_NEW_TOKENS`. `tokens` and `mask` are the prompts (B, T), padded on the
    left.
    """
    width = tokens.shape[1]
    written = generate(
        context=tokens,
        attention_mask=mask,
        max_length=width + TRIAL_NEW_TOKENS,
        stop=[],
        do_sample=False,
    )
    return written[:, width:]


def next_scores(model: Any, pad_token_id: int | None, tokens: Tensor, mask: Tensor) -> Tensor:
    """Returns the logits (B, S, V) of the tokens with which transformers continues the prompts.

    S is `TRIAL_NEW_TOKENS`. `tokens` and `mask` are the prompts (B, T), padded on the left.
    """
    made = model.generate(
        input_ids=tokens,
        attention_mask=mask,
        min_new_tokens=TRIAL_NEW_TOKENS,
        max_new_tokens=TRIAL_NEW_TOKENS,
        do_sample=False,
        num_beams=1,
        pad_token_id=pad_token_id,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.stack(made.logits, dim=1)


def batching_difference(
    continue_batch: ContinueBatch,
    other: list[int],
    text: list[int],
    device: torch.device,
    dtype: torch.dtype,
) -> str:
    """Returns in words how the continuation of `text` changes if it shares a batch with `other`.

    Returns an empty string if it does not change: the same tokens, or log-probabilities that differ
    by no more than the rounding of `dtype` explains. If the model raises an error, returns a
    description of it; only a lack of memory is raised. `other` must be at least as long as `text`.
    """
    padding = len(other) - len(text)
    tokens = torch.tensor([other, [0] * padding + text], device=device)
    mask = torch.ones_like(tokens)
    mask[1, :padding] = 0
    try:
        with torch.inference_mode():
            together = continue_batch(tokens, mask)[1]
            alone = continue_batch(tokens[1:, padding:], mask[1:, padding:])[0]
    except Exception as error:  # third-party model code can raise anything
        if is_out_of_memory(error):
            raise
        return describe_error(error)
    if together.dim() == 1:
        return "" if torch.equal(together, alone) else "other tokens are generated"
    for batched, single in zip(together, alone, strict=False):
        worst = logprob_difference(batched[None], single[None])
        if not worst <= TOLERANCE.get(dtype, 0.15):
            return f"log-probabilities differ by {worst:.2g} per token"
        if batched.argmax() != single.argmax():
            break  # two tokens are about equally likely, so different texts follow
    return ""
