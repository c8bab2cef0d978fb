"""Chooses the next tokens from logits, on the device and without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval.models.conventions import Generation

MAX_CANDIDATES = 256
"""Up to this `top_k`, only the candidates are sampled from, not the whole vocabulary."""
TIED_CANDIDATES = 32
"""How many more tokens than `top_k` are candidates, because they may be as likely as the last."""


def choose_tokens(
    logits: Tensor, settings: Generation, draws: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Returns the next token of each row of `logits` (B, V), and whether the row is free of NaN.

    Without `draws` it is the most likely token. Otherwise it is sampled, with the temperature,
    `top_k` and `top_p` of the settings: the token at which the cumulative distribution exceeds the
    row's number in `draws`, which is from [0, 1). The token of a row with NaN has no meaning.
    """
    if draws is None:
        best = logits.max(dim=-1)
        return best.indices, ~best.values.isnan()
    count = settings.top_k + TIED_CANDIDATES
    if 0 < settings.top_k <= MAX_CANDIDATES and count < logits.shape[1]:
        found = logits.topk(count, dim=-1)
        least = found.values[:, settings.top_k - 1 : settings.top_k]
        # In the order of the vocabulary, in which the cumulative distribution is summed.
        candidates, order = found.indices.sort(dim=-1)
        scaled = found.values.gather(1, order).float() / settings.temperature
        scaled = scaled.masked_fill(scaled < least.float() / settings.temperature, -torch.inf)
        place, is_number = _sample(scaled, settings, draws)
        return candidates.gather(1, place[:, None])[:, 0], is_number
    scaled = logits.float() / settings.temperature
    if settings.top_k and settings.top_k < scaled.shape[1]:
        least = scaled.topk(settings.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    return _sample(scaled, settings, draws)


def _sample(scaled: Tensor, settings: Generation, draws: Tensor) -> tuple[Tensor, Tensor]:
    """Returns a sampled column of each row of `scaled` logits, and whether the row has no NaN."""
    weights = torch.softmax(scaled, dim=-1)
    if settings.top_p < 1.0:
        ranked = weights.sort(dim=-1, descending=True).values
        inside = ranked.cumsum(dim=-1) - ranked < settings.top_p
        inside[:, 0] = True
        least = ranked.masked_fill(~inside, torch.inf).amin(dim=-1, keepdim=True)
        weights = weights.masked_fill(weights < least, 0.0)
    upto = weights.double().cumsum(dim=-1)
    place = (upto <= draws[:, None].to(upto.device) * upto[:, -1:]).sum(dim=-1)
    return place.clamp(max=upto.shape[1] - 1), ~upto[:, -1].isnan()
