"""Run a model's small operations by one kernel each, and leave the model as it is.

Modules are known by what they compute, not by name: one that is built like a normalisation or a
gated layer is run beside the kernel on random numbers, and only where both agree does the kernel
take its place. It does so for the time of a forward pass of ours (`Fusion.switched_on`); whoever
else runs the model finds it unchanged. The start-up check then holds the whole against the model's
own pass.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, MethodType
from typing import Any

import torch
from torch import Tensor, nn

from lm_eval.models.huggingface.kernels.compiler import triton
from lm_eval.models.huggingface.kernels.layers import gate, normalise, rotate

logger = logging.getLogger(__name__)

ROTATION = "apply_rotary_pos_emb"
"""What models of transformers call the function that turns positions into queries and keys."""
ACTIVATIONS = ("silu", "gelu_tanh")
LONGEST_ROW = 1 << 14
"""Widest hidden state that one program normalises."""

Forward = Callable[..., Any]


class Fusion:
    """The forward functions that stand in for those of some of a model's modules."""

    def __init__(self, forwards: dict[nn.Module, Forward] | None = None) -> None:
        self.forwards = forwards or {}

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        try:
            for module, forward in self.forwards.items():
                module.__dict__["forward"] = forward
            yield
        finally:
            for module in self.forwards:
                module.__dict__.pop("forward", None)


def fuse(model: nn.Module) -> Fusion:
    """Find the modules of a model, on a GPU, that kernels can stand in for."""
    if triton is None:
        return Fusion()
    try:
        with torch.inference_mode():
            return Fusion(dict(_found(model)))
    except Exception as error:  # whatever a compiler may say: there is another way
        logger.info("Operations are not fused: %s", error)
        return Fusion()


def _found(model: nn.Module) -> Iterator[tuple[nn.Module, Forward]]:
    turned: dict[Forward, Forward | None] = {}  # by attention class's forward
    for module in model.modules():
        if "forward" in vars(module):  # somebody was here before
            continue
        own = type(module).forward
        if own not in turned:
            turned[own] = _with_fused_rotation(own, _device(module))
        fused = turned[own]
        if fused is not None:
            yield module, MethodType(fused, module)
        elif forward := _normalisation(module) or _gated(module):
            yield module, forward


def _device(module: nn.Module) -> torch.device:
    return next((p.device for p in module.parameters()), torch.device("cpu"))


def _agree(one: Tensor, other: Tensor) -> bool:
    """Whether two results differ by no more than a last digit."""
    if one.dtype != other.dtype:
        return False
    digit = torch.finfo(one.dtype).eps
    alike: bool = torch.allclose(one, other, rtol=4 * digit, atol=4 * digit)
    return alike


def _normalisation(module: nn.Module) -> Forward | None:
    """A root-mean-square norm: one weight, nothing inside."""
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if not isinstance(weight, Tensor) or not isinstance(epsilon, float):
        return None
    if len(list(module.parameters())) != 1 or next(module.children(), None) is not None:
        return None
    if weight.ndim != 1 or weight.device.type != "cuda" or len(weight) > LONGEST_ROW:
        return None
    own = type(module).forward
    trial = 3 * torch.randn(4, len(weight), device=weight.device).to(weight.dtype)
    for from_one in (False, True):

        def forward(x: Tensor, from_one: bool = from_one) -> Any:
            scale: Any = module.weight
            if x.dtype != scale.dtype:
                return own(module, x)
            return normalise(x, scale, epsilon, from_one=from_one)

        if _agree(forward(trial), own(module, trial)):
            return forward
    return None


def _gated(module: nn.Module) -> Forward | None:
    """A layer of three products, two side by side, one of them through an activation."""
    first, second, last = (
        getattr(module, name, None) for name in ("gate_proj", "up_proj", "down_proj")
    )
    if first is None or second is None or last is None:
        return None
    width = getattr(first, "in_features", None)
    weight = getattr(first, "weight", None)
    if width is None or not isinstance(weight, Tensor) or weight.device.type != "cuda":
        return None
    kind = next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)
    trial = torch.randn(4, width, device=weight.device).to(kind)
    expected = module(trial)
    for activation in ACTIVATIONS:

        def forward(x: Tensor, activation: str = activation) -> Tensor:
            mixed: Tensor = last(gate(first(x), second(x), activation))
            return mixed

        if _agree(forward(trial), expected):
            return forward
    return None


def _with_fused_rotation(forward: Forward, device: torch.device) -> Forward | None:
    """An attention layer's forward, reading our rotation under the name of its own."""
    if not isinstance(forward, FunctionType) or ROTATION not in forward.__code__.co_names:
        return None
    plain = forward.__globals__.get(ROTATION)
    if plain is None or device.type != "cuda":
        return None

    def rotation(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **more: Any) -> Any:
        if rest or more or not all(_rotates(x, cos, sin) for x in (q, k)):
            return plain(q, k, cos, sin, *rest, **more)
        return rotate(q, cos, sin), rotate(k, cos, sin)

    q, k = (torch.randn(1, 5, heads, 32, device=device).transpose(1, 2) for heads in (4, 2))
    angles = torch.randn(2, 1, 5, 32, device=device)
    expected = plain(q, k, *angles)
    if not all(map(_agree, rotation(q, k, *angles), expected)):
        return None
    names = {**forward.__globals__, ROTATION: rotation}
    made = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    made.__kwdefaults__ = forward.__kwdefaults__
    return made


def _rotates(x: Tensor, cosine: Tensor, sine: Tensor) -> bool:
    """Whether the kernel knows these shapes."""
    return (
        x.ndim == 4
        and cosine.shape == sine.shape == (cosine.shape[0], x.shape[2], x.shape[3])
        and cosine.shape[0] in (1, x.shape[0])
        and x.stride(3) == cosine.stride(2) == sine.stride(2) == 1
        and cosine.stride() == sine.stride()
        and x.shape[3] % 2 == 0
        and x.dtype == cosine.dtype
    )
