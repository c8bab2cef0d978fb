"""Helpers for packed prefix trees, used by the plain attention layout and by the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Batch, Ints


def copy_to_device(array: Any, device: torch.device) -> Tensor:
    """Returns a numpy array as a tensor, which is on `device` if that is a CUDA device.

    Such a copy is asynchronous, from page-locked memory: the device is not waited for. For any
    other device, the tensor stays in main memory and shares the array's data.
    """
    tensor = torch.from_numpy(array)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


def chain_ranges(batch: Batch) -> Ints:
    """Returns the ranges (C, 2) of nodes in which every node is the child of the one before it.

    Each range consists of its first node and the one after its last. Nodes computed with the
    previous batch (`batch.num_cached`) are not included. Where the tree branches, the first child
    continues the range, so there is one range per leaf.
    """
    given, total = batch.num_cached, len(batch.tokens)
    nodes = np.arange(given, total)
    starts = nodes[(batch.parent[given:] != nodes - 1) | (nodes == given)]
    return np.stack([starts, np.append(starts[1:], total)], axis=1)
