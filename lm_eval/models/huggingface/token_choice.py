"""Chooses the next tokens from logits, on the device and without waiting for it."""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval.models.conventions import Generation

MAX_CANDIDATES = 256
"""Up to this `top_k`, only the candidates are sampled from, not the whole vocabulary."""
TIED_CANDIDATES = 32
"""How many more tokens than `top_k` are candidates, because they may be as likely as the last."""
PART_PIECES, PIECE = 16, 8
"""A part of the vocabulary consists of so many pieces of so many neighboring tokens."""
MIN_LOGITS_IN_PARTS = 1 << 24
"""From so many logits on, the largest are found in parts of the vocabulary, which then takes about
60 % of the time. With few rows, it takes longer."""


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
        values, indices = _largest(logits, count)
        least = values[:, settings.top_k - 1 : settings.top_k]
        # In the order of the vocabulary, in which the cumulative distribution is summed.
        candidates, order = indices.sort(dim=-1)
        scaled = values.gather(1, order).float() / settings.temperature
        scaled = scaled.masked_fill(scaled < least.float() / settings.temperature, -torch.inf)
        place, is_number = _sample(scaled, settings, draws)
        return candidates.gather(1, place[:, None])[:, 0], is_number
    scaled = logits.float() / settings.temperature
    if settings.top_k and settings.top_k < scaled.shape[1]:
        least = scaled.topk(settings.top_k, dim=-1).values[:, -1:]
        scaled = scaled.masked_fill(scaled < least, -torch.inf)
    return _sample(scaled, settings, draws)


def _largest(logits: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns the `count` largest of each row of `logits` (B, V) in descending order, and where.

    If there are many logits, the vocabulary is divided into parts, and only the `count` parts with
    the largest maxima are searched: all others are at most as large as each of these maxima.
    """
    width, size = logits.shape[1], PART_PIECES * PIECE
    parts = width // size
    if logits.numel() < MIN_LOGITS_IN_PARTS or parts <= 2 * count:
        found = logits.topk(count, dim=-1)
        return found.values, found.indices
    whole = parts * size
    # The pieces of a part are far apart: maxima over a last dimension are slower.
    pieces = logits[:, :whole].unflatten(1, (PART_PIECES, parts, PIECE))
    part = pieces.amax(dim=1).amax(dim=-1).topk(count, dim=-1, sorted=False).indices
    piece = torch.arange(PART_PIECES, device=logits.device)[:, None] * (parts * PIECE)
    of_first = (piece + torch.arange(PIECE, device=logits.device)).flatten()
    rest = torch.arange(whole, width, device=logits.device).expand(len(logits), -1)
    places = torch.cat([(part[:, :, None] * PIECE + of_first).flatten(1), rest], dim=1)
    values, order = logits.gather(1, places).topk(count, dim=-1)
    return values, places.gather(1, order)


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
