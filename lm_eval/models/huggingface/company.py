"""Which prompts transformers can continue together: tried out on the prompts themselves.

In a batch, shorter prompts are filled up on their left. States of recurrent models may swallow the
filling, classes of one's own may drop the mask, and some code mixes the rows of a batch up; then an
answer would depend on what else is asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.check import TOLERANCE, in_a_line, likely_difference
from lm_eval.models.huggingface.generation import Prompt
from lm_eval.models.huggingface.loading import dtype_of
from lm_eval.models.huggingface.memory import is_out_of_memory

if TYPE_CHECKING:
    from lm_eval.models.huggingface.model import HFLM

logger = logging.getLogger(__name__)

Company = Literal["any", "equal", "none"]
"""Prompts of any lengths go together, of equal ones, or none."""
Generate = Callable[[Tensor, Tensor], Tensor]

READ, WRITTEN = 24, 6
"""Most tokens of a prompt that are read to see what company changes, and tokens written."""


def try_company(lm: HFLM, prompts: Sequence[Prompt]) -> Company:
    """Continue the last of some prompts, sorted by length, beside the first and by itself."""
    long, short = prompts[0].tokens[-READ:], prompts[-1].tokens[-READ // 2 :]
    dtype = lm.mixed_precision_dtype or dtype_of(lm.model)

    def differs(beside: list[int]) -> str:
        return company_differs(lambda *rows: continued(lm, *rows), beside, short, lm.device, dtype)

    problem = differs(long if len(long) > len(short) else [*long, *long])
    if not problem:
        return "any"
    worse = differs(long[-len(short) :])
    logger.warning(
        "%s on %s: otherwise, %s.",
        "Prompts are continued one by one"
        if worse
        else "Only prompts of one length are continued together",
        type(lm.model).__name__,
        worse or problem,
    )
    return "none" if worse else "equal"


def continued(lm: HFLM, tokens: Tensor, mask: Tensor) -> Tensor:
    """What follows tokens (B, T): scores (B, S, V), or tokens (B, S) where a subclass generates."""
    if type(lm)._model_generate is not HuggingFaceModel._model_generate:
        width = tokens.shape[1]
        written = lm._model_generate(
            context=tokens,
            attention_mask=mask,
            max_length=width + WRITTEN,
            stop=[],
            do_sample=False,
        )
        return written[:, width:]
    with lm.autocast():
        made = lm.model.generate(
            input_ids=tokens,
            attention_mask=mask,
            min_new_tokens=WRITTEN,
            max_new_tokens=WRITTEN,
            do_sample=False,
            num_beams=1,
            pad_token_id=lm.tokenizer.pad_token_id,
            return_dict_in_generate=True,
            output_logits=True,
        )
    return torch.stack(made.logits, dim=1)


def company_differs(
    generate: Generate,
    beside: list[int],
    text: list[int],
    device: torch.device,
    dtype: torch.dtype,
) -> str:
    """How a text is continued otherwise beside another, no shorter one, than by itself."""
    fill = len(beside) - len(text)
    tokens = torch.tensor([beside, [0] * fill + text], device=device)
    mask = torch.ones_like(tokens)
    mask[1, :fill] = 0
    try:
        with torch.inference_mode():
            together = generate(tokens, mask)[1]
            alone = generate(tokens[1:, fill:], mask[1:, fill:])[0]
    except Exception as error:
        if is_out_of_memory(error):
            raise
        return in_a_line(error)
    if together.dim() == 1:
        return "" if torch.equal(together, alone) else "other tokens follow"
    for ours, theirs in zip(together, alone, strict=False):
        worst = likely_difference(ours, theirs)
        if not worst <= TOLERANCE.get(dtype, 0.15):
            return f"scores differ by {worst:.2g} a token"
        if ours.argmax() != theirs.argmax():
            break  # of two that are alike; what follows is another text
    return ""
