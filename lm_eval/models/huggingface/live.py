"""Live models belong to their owner: changes between calls are noticed, and all is restored."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn
from transformers import GenerationMixin


def state_of(model: Any) -> Hashable:
    """Returns what a check of the model depends on: modules, hooks, replaced functions, adapters.

    Weights may change: no execution mode depends on them.
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
    """Turns dropout off inside the `with` block; a model under training continues as it was.

    `model.eval()` would do, but not remember which modules were in training mode. Their attributes
    are restored at the end.
    """
    training = [m for m in model.modules() if m.training] if isinstance(model, nn.Module) else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def has_own_generate(model: Any) -> bool:
    """Whether the model has a custom `generate`."""
    inner = getattr(model, "_orig_mod", model)  # what was compiled
    if hasattr(inner, "get_base_model"):  # around it, adapters
        inner = inner.get_base_model()
    own = getattr(type(inner), "generate", GenerationMixin.generate)
    exchanged = any("generate" in getattr(m, "__dict__", {}) for m in (model, inner))
    return exchanged or own is not GenerationMixin.generate
