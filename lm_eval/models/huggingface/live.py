"""A live model is its owner's: it may change between two calls, and is left as it was found."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import GenerationMixin


def state_of(model: Any) -> Hashable:
    """What a check of the model held for: its modules, their hooks, replaced functions, adapters.

    Weights may change as they like: no way of running a model depends on them.
    """
    if not isinstance(model, nn.Module):
        return id(model)
    return tuple(
        (
            id(module),
            tuple(map(id, module._forward_hooks.values())),
            tuple(map(id, module._forward_pre_hooks.values())),
            id(own.get("forward")),
            own.get("_disable_adapters"),
            str(own.get("_active_adapter")),
        )
        for module in model.modules()
        for own in [vars(module)]
    )


@contextmanager
def evaluating(model: Any) -> Iterator[None]:
    """Without dropout, for a while: a model under training goes on where it was."""
    training = [m for m in model.modules() if m.training] if isinstance(model, nn.Module) else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def has_own_generate(model: Any) -> bool:
    """Whether somebody has written another way of generating for this very model."""
    inner = getattr(model, "_orig_mod", model)  # what was compiled
    if hasattr(inner, "get_base_model"):  # around it, adapters
        inner = inner.get_base_model()
    own = getattr(type(inner), "generate", GenerationMixin.generate)
    exchanged = any("generate" in getattr(m, "__dict__", {}) for m in (model, inner))
    return exchanged or own is not GenerationMixin.generate
