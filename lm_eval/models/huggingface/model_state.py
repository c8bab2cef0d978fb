"""Functions for a loaded model that its owner may change or train between two calls.

Changes are noticed, and the model is left as it was.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn


def model_fingerprint(model: Any) -> Hashable:
    """Returns a value that changes whenever the start-up check of the model must be repeated.

    It depends on modules, hooks, replaced forward functions and active adapters. It does not depend
    on the weights, because no execution mode does. For an object that is not a torch module, it is
    its `id`.
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


def has_foreign_code(model: nn.Module) -> bool:
    """Returns whether modules have hooks or replaced forwards, or are third-party classes.

    Third-party are all classes that are not part of torch or transformers.
    """
    return any(
        type(module).__module__.split(".")[0] not in ("torch", "transformers")
        or module._forward_hooks
        or module._forward_pre_hooks
        or "forward" in vars(module)
        for module in model.modules()
    )


@contextmanager
def eval_mode(model: Any) -> Iterator[None]:
    """Turns off training mode, and so dropout, inside the `with` block.

    Unlike `model.eval()`, it remembers which modules were in training mode, and restores them at
    the end. It does nothing for an object that is not a torch module.
    """
    training = [m for m in model.modules() if m.training] if isinstance(model, nn.Module) else []
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def has_custom_generate(model: Any) -> bool:
    """Returns whether the model has a `generate` other than that of transformers."""
    from transformers import GenerationMixin  # the other functions work without transformers

    inner = getattr(model, "_orig_mod", model)  # the model inside `torch.compile`
    if hasattr(inner, "get_base_model"):  # the model inside PEFT adapters
        inner = inner.get_base_model()
    own = getattr(type(inner), "generate", GenerationMixin.generate)
    replaced = any("generate" in getattr(m, "__dict__", {}) for m in (model, inner))
    return replaced or own is not GenerationMixin.generate
