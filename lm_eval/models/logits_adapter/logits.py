"""Reads logits of torch, numpy or another library, and copies only what is needed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm_eval.engine.plan import Bools, Ints

Doubles = NDArray[np.float64]

VALUES_AT_ONCE = 1 << 24
"""How many logits are converted and reduced at once."""


def torch_if_imported() -> Any:
    """Returns the module torch, or None if this process has not imported it."""
    return sys.modules.get("torch")


def is_tensor(value: Any) -> bool:
    """Returns whether a value is a torch tensor; does not import torch."""
    torch = torch_if_imported()
    return torch is not None and isinstance(value, torch.Tensor)


def as_logits(output: Any) -> Any:
    """Returns what a model returned as a torch tensor or a numpy array.

    An object with an attribute `logits`, such as the outputs of transformers, stands for that.
    """
    found = getattr(output, "logits", output)
    return found.detach() if is_tensor(found) else np.asarray(found)


def is_half_precision(values: Any) -> bool:
    """Returns whether the numbers of an array or tensor have fewer than 32 bits."""
    return bool(values.dtype.itemsize < 4)


def log_probabilities(logits: Any) -> Doubles:
    """Returns the log-probabilities over the last axis, computed with at least 32 bits."""
    if is_tensor(logits):
        wide = logits if logits.dtype.itemsize == 8 else logits.float()
        return np.asarray(wide.log_softmax(-1).cpu().numpy(), dtype=np.float64)
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


def scores_of(logits: Any, rows: Ints, positions: Ints, targets: Ints) -> tuple[Doubles, Bools]:
    """Returns the log-probability of each target, and whether it is the most likely token.

    Args:
        logits: next-token logits (B, T, V).
        rows: the row of each target (P).
        positions: the position that predicts each target (P).
        targets: the tokens (P).
    """
    places, place_of = np.unique(rows * logits.shape[1] + positions, return_inverse=True)
    flat = logits.reshape(-1, logits.shape[-1])
    found = np.zeros(len(targets))
    greedy = np.zeros(len(targets), dtype=bool)
    for first, last in _pieces(len(places), logits.shape[-1]):
        some = _rows_of(flat, places[first:last])
        here = np.flatnonzero((place_of >= first) & (place_of < last))
        row, token = place_of[here] - first, targets[here]
        if is_tensor(some):
            found[here], greedy[here] = _tensor_scores(some, row, token)
        else:
            found[here] = log_probabilities(some)[row, token]
            greedy[here] = some.argmax(axis=1)[row] == token
    return found, greedy


def _tensor_scores(logits: Any, rows: Ints, tokens: Ints) -> tuple[Doubles, Bools]:
    """Returns what `scores_of` does, for torch logits (N, V), computed on their device.

    `tokens` (P) are the targets, and `rows` (P) the row of logits that predicts each.
    """
    torch = torch_if_imported()
    row, token = (torch.from_numpy(array).to(logits.device) for array in (rows, tokens))
    wide = logits if logits.dtype.itemsize == 8 else logits.float()
    found = wide[row, token] - torch.logsumexp(wide, dim=-1)[row]
    greedy = logits.argmax(dim=-1)[row] == token
    return found.double().cpu().numpy(), greedy.cpu().numpy()


def rows_at(logits: Any, positions: Ints) -> Doubles:
    """Returns the logits (B, V) at one position of each row of (B, T, V), as numpy array."""
    width = logits.shape[1]
    flat = logits.reshape(-1, logits.shape[-1])
    found = _rows_of(flat, np.arange(len(positions)) * width + positions)
    return np.asarray(found.float().cpu().numpy() if is_tensor(found) else found, dtype=np.float64)


def _rows_of(flat: Any, places: Ints) -> Any:
    """Returns the rows `places` of the logits `flat` (N, V), on their device."""
    if not is_tensor(flat):
        return flat[places]
    return flat[torch_if_imported().from_numpy(places).to(flat.device)]


def _pieces(rows: int, vocabulary: int) -> Iterator[tuple[int, int]]:
    """Yields ranges `(first, last)` of rows that are reduced at once."""
    at_once = max(1, VALUES_AT_ONCE // vocabulary)
    for first in range(0, rows, at_once):
        yield first, min(rows, first + at_once)
