"""Merges projections of the same input into one matrix product, for decoding.

With few rows, a matrix product takes the time to read its weights, and small ones do not even use
the whole GPU. One product that gives queries, keys and values takes half the time of three
products. One for the two projections of a gated MLP takes 85 % of the time of two.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from lm_eval.models.huggingface.kernels.compiler import can_run_on
from lm_eval.models.huggingface.replaced_forwards import Forward

NAMES = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""The names in transformers of projections of the same input."""


def merge_projections(model: nn.Module, most_bytes: int) -> dict[nn.Module, Forward]:
    """Returns, by module, forward functions for the projections that can be merged.

    They hold a copy of the weights. Projections whose copies would take more than `most_bytes` are
    left out, and so are all without Triton.
    """
    forwards: dict[nn.Module, Forward] = {}
    for names in NAMES:
        found: list[list[Any]] = [
            [getattr(module, name, None) for name in names] for module in model.modules()
        ]
        merging = [parts for parts in found if all(map(_is_plain_linear, parts)) and _match(parts)]
        most_bytes -= sum(part.weight.nbytes for parts in merging for part in parts)
        if most_bytes < 0:
            break
        for parts in merging:
            forwards.update(_merged(parts))
    return forwards


def _is_plain_linear(module: Any) -> bool:
    """Returns whether a module is a linear layer on a GPU, without hooks or anything special."""
    return (
        type(module) is nn.Linear
        and can_run_on(module.weight.device)
        and not hasattr(module.weight, "device_mesh")
        and not module._forward_hooks
        and not module._forward_pre_hooks
        and "forward" not in vars(module)
    )


def _match(parts: list[Any]) -> bool:
    """Returns whether the weights can be concatenated, and either all have a bias or none."""
    kinds = {(p.in_features, p.weight.dtype, p.weight.device, p.bias is None) for p in parts}
    return len(kinds) == 1


def _merged(parts: list[Any]) -> dict[nn.Module, Forward]:
    """Returns forward functions of some projections of the same input.

    The first one that is called computes all, and the others return their part of the result if
    they get the same input.
    """
    weight = torch.cat([part.weight.detach() for part in parts])
    bias = None if parts[0].bias is None else torch.cat([part.bias.detach() for part in parts])
    sizes = [part.out_features for part in parts]
    last: list[Any] = [None, ()]

    def make(index: int) -> Forward:
        def forward(x: Tensor) -> Tensor:
            if last[0] is not x:
                last[:] = x, functional.linear(x, weight, bias).split(sizes, dim=-1)
            found: Tensor = last[1][index]
            if index == len(parts) - 1:  # so that the input does not outlive the layer
                last[:] = None, ()
            return found

        return forward

    return {part: make(index) for index, part in enumerate(parts)}
