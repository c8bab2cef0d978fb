"""Helpers for packed prefix trees that the plain layout and the kernels share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Batch, Ints


def send(array: Any, device: torch.device) -> Tensor:
    """Returns the array as a tensor on the device, copied without waiting for earlier work.

    On CUDA an asynchronous copy needs page-locked memory.
    """
    sent = torch.from_numpy(array)
    return sent.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else sent


def runs(batch: Batch) -> Ints:
    """Returns the stretches (C, 2) of not-given nodes in which each node follows its parent.

    A branch does not end a run, because its first child continues it: there is one run per leaf.
    """
    given, total = batch.given, len(batch.tokens)
    nodes = np.arange(given, total)
    starts = nodes[(batch.parent[given:] != nodes - 1) | (nodes == given)]
    return np.stack([starts, np.append(starts[1:], total)], axis=1)
