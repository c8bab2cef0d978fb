"""Which prompts transformers can continue in one batch, found by trying it on the prompts.

In a batch, shorter prompts are padded on their left. Recurrent models may take the padding into
their state, custom classes may drop the mask, and some code mixes up the rows of a batch. Then an
answer would depend on the other requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from lm_eval.models.huggingface.check import TOLERANCE, failure, likely_difference
from lm_eval.models.huggingface.memory import is_out_of_memory

logger = logging.getLogger(__name__)

BatchCompatibility = Literal["any", "equal", "none"]
"""Prompts of any lengths share a batch, only prompts of equal length, or none."""
Continue = Callable[[Tensor, Tensor], Tensor]
"""From tokens (B, T) and their mask to what follows: scores (B, S, V), or tokens (B, S)."""

READ, WRITTEN = 24, 6
"""Most tokens of a prompt that are read in the trial, and tokens that are generated."""


def try_batches(
    proceed: Continue,
    long: list[int],
    short: list[int],
    device: torch.device,
    dtype: torch.dtype,
    name: str,
) -> BatchCompatibility:
    """Returns whether the short prompt is continued beside the long one as it is by itself.

    Args:
        proceed: continues a batch of prompts.
        long: tokens of a prompt that is no shorter than `short`.
        short: tokens of the prompt that would be padded.
        device: where the model reads its tokens.
        dtype: the format that the model computes in, which says what rounding explains.
        name: what the model is called in the warning.
    """
    long, short = long[-READ:], short[-READ // 2 :]

    def differs(beside: list[int]) -> str:
        return batch_differs(proceed, beside, short, device, dtype)

    problem = differs(long if len(long) > len(short) else [*long, *long])
    if not problem:
        return "any"
    worse = differs(long[-len(short) :])
    logger.warning(
        "%s on %s: otherwise, %s.",
        "Prompts are continued one by one"
        if worse
        else "Only prompts of one length are continued together",
        name,
        worse or problem,
    )
    return "none" if worse else "equal"


def next_tokens(generate: Callable[..., Tensor], tokens: Tensor, mask: Tensor) -> Tensor:
    """Returns the tokens (B, S) that a subclass's `_model_generate` puts after tokens (B, T)."""
    width = tokens.shape[1]
    written = generate(
        context=tokens,
        attention_mask=mask,
        max_length=width + WRITTEN,
        stop=[],
        do_sample=False,
    )
    return written[:, width:]


def next_scores(model: Any, pad_token_id: int | None, tokens: Tensor, mask: Tensor) -> Tensor:
    """Returns the scores (B, S, V) by which transformers goes on after tokens (B, T)."""
    made = model.generate(
        input_ids=tokens,
        attention_mask=mask,
        min_new_tokens=WRITTEN,
        max_new_tokens=WRITTEN,
        do_sample=False,
        num_beams=1,
        pad_token_id=pad_token_id,
        return_dict_in_generate=True,
        output_logits=True,
    )
    return torch.stack(made.logits, dim=1)


def batch_differs(
    proceed: Continue,
    beside: list[int],
    text: list[int],
    device: torch.device,
    dtype: torch.dtype,
) -> str:
    """Returns how another, no shorter text beside it changes a text's continuation, if it does."""
    fill = len(beside) - len(text)
    tokens = torch.tensor([beside, [0] * fill + text], device=device)
    mask = torch.ones_like(tokens)
    mask[1, :fill] = 0
    try:
        with torch.inference_mode():
            together = proceed(tokens, mask)[1]
            alone = proceed(tokens[1:, fill:], mask[1:, fill:])[0]
    except Exception as error:  # of third-party model code; the reason is logged by `try_batches`
        if is_out_of_memory(error):
            raise
        return failure(error)
    if together.dim() == 1:
        return "" if torch.equal(together, alone) else "other tokens follow"
    for ours, theirs in zip(together, alone, strict=False):
        worst = likely_difference(ours, theirs)
        if not worst <= TOLERANCE.get(dtype, 0.15):
            return f"scores differ by {worst:.2g} a token"
        if ours.argmax() != theirs.argmax():
            break  # two tokens are about equally likely; what follows is another text
    return ""
