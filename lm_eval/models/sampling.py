"""Chooses the next tokens of generated text from logits, in plain numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm_eval.engine.plan import Ints
from lm_eval.models.conventions import Generation

Floats = NDArray[np.floating[Any]]
Doubles = NDArray[np.float64]


def choose_tokens(logits: Floats, settings: Generation, draws: Doubles | None) -> Ints:
    """Returns the next token of each row.

    Args:
        logits: the next-token scores, of shape (rows, vocabulary).
        settings: temperature, top-k and top-p, used for sampling.
        draws: one random number from [0, 1) per row, for sampling; None for greedy decoding.
    """
    if draws is None:
        return np.asarray(logits.argmax(axis=1))
    scaled = logits.astype(np.float64) / settings.temperature
    if settings.top_k and settings.top_k < scaled.shape[1]:
        least = -np.partition(-scaled, settings.top_k - 1, axis=1)[:, settings.top_k - 1, None]
        scaled[scaled < least] = -np.inf
    weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    if settings.top_p < 1.0:
        ranked = -np.sort(-weights, axis=1)
        before = np.cumsum(ranked, axis=1) - ranked
        inside = before < settings.top_p * ranked.sum(axis=1, keepdims=True)
        inside[:, 0] = True
        weights[weights < np.where(inside, ranked, np.inf).min(axis=1, keepdims=True)] = 0.0
    upto = np.cumsum(weights, axis=1)
    place = (upto <= draws[:, None] * upto[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(place, upto.shape[1] - 1))
