"""Functions for a loaded model that its owner may change or train between two calls.

Changes are noticed, and the model is left as it was.
"""

from __future__ import annotations

import random
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
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


@contextmanager
def random_state_restored() -> Iterator[None]:
    """Restores the state of all random generators at the end of the `with` block.

    These are the global ones of Python, numpy and torch, on the CPU and on every device. Training
    that continues afterwards draws the same numbers as if the block had not been run.
    """
    python, legacy, cpu = random.getstate(), np.random.get_state(), torch.get_rng_state()
    devices = torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []
    mps = torch.mps.get_rng_state() if torch.backends.mps.is_available() else None
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(legacy)
        torch.set_rng_state(cpu)
        if devices:
            torch.cuda.set_rng_state_all(devices)
        if mps is not None:
            torch.mps.set_rng_state(mps)


def is_sharded(model: Any) -> bool:
    """Returns whether each process holds only a part of the weights (FSDP, DeepSpeed ZeRO-3).

    Then no process can run the model alone.
    """
    if not isinstance(model, nn.Module):
        return False
    names = {base.__name__ for part in model.modules() for base in type(part).__mro__}
    if names & {"FullyShardedDataParallel", "FSDPModule"}:
        return True
    return any(hasattr(weight, "ds_id") for weight in model.parameters())


def has_custom_generate(model: Any) -> bool:
    """Returns whether the model has a `generate` other than that of transformers."""
    from transformers import GenerationMixin  # the other functions work without transformers

    inner = getattr(model, "_orig_mod", model)  # the model inside `torch.compile`
    if hasattr(inner, "get_base_model"):  # the model inside PEFT adapters
        inner = inner.get_base_model()
    own = getattr(type(inner), "generate", GenerationMixin.generate)
    replaced = any("generate" in getattr(m, "__dict__", {}) for m in (model, inner))
    return replaced or own is not GenerationMixin.generate
