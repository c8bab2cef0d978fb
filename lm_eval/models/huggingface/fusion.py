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
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lm_eval.models.huggingface.kernels.compiler import triton
from lm_eval.models.huggingface.kernels.layers import gate, normalise, rotate

logger = logging.getLogger(__name__)

ROTATION = "apply_rotary_pos_emb"
"""What models of transformers call the function that turns positions into queries and keys."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}
DEVICES = ("cuda",)
"""What the kernels run on."""
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
    apart = any(hasattr(weight, "device_mesh") for weight in model.parameters())
    if triton is None or apart:  # processes that hold parts of one model must all do the same
        return Fusion()
    forwards: dict[nn.Module, Forward] = {}
    with torch.inference_mode():
        attentions = dict(_attentions(model))
        turned = {forward: _turned(forward, device) for forward, device in attentions.items()}
        for module in model.modules():
            own = type(module).forward
            if "forward" in vars(module):  # somebody was here before
                continue
            if rotating := turned.get(own):
                forwards[module] = MethodType(rotating, module)
                continue
            if stand_in := _stand_in(module):
                forwards[module] = stand_in
    return Fusion(forwards)


class Candidate(NamedTuple):
    """A forward function that may compute what a module does, and some input to try both on."""

    forward: Forward
    trial: Tensor


def _stand_in(module: nn.Module) -> Forward | None:
    """A function that gives what the module does, if there is one."""
    try:
        for forward, trial in (*_normalisations(module), *_gates(module)):
            if _alike(forward(trial), type(module).forward(module, trial)):
                return forward
    except Exception as error:  # whatever a compiler or another's code may say: it stays as it is
        logger.info("%s is not fused: %s", type(module).__name__, error)
    return None


def _alike(one: Tensor, other: Tensor) -> bool:
    """Whether results differ, as a whole, by less than rounding does.

    Small ones are not excused: what is small here may be large for other input.
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    digit = torch.finfo(one.dtype).eps
    tolerance = digit / 2 if digit > 1e-6 else 4 * digit  # sums of float32 depend on their order
    difference = torch.linalg.vector_norm(one.double() - other.double())
    return bool(difference <= tolerance * torch.linalg.vector_norm(other.double()))


def _draw(*shape: int, device: torch.device) -> Tensor:
    """Random numbers, without taking from those that anybody else draws."""
    return torch.randn(*shape, generator=torch.Generator(device).manual_seed(0), device=device)


def _normalisations(module: nn.Module) -> Iterator[Candidate]:
    """For what is built like a root-mean-square norm: one weight, nothing inside."""
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if (
        isinstance(weight, Tensor)
        and isinstance(epsilon, float)
        and len(list(module.parameters())) == 1
        and weight.ndim == 1
        and weight.device.type in DEVICES
        and len(weight) <= LONGEST_ROW
    ):
        trial = 3 * _draw(4, len(weight), device=weight.device).to(weight.dtype)
        for from_one in (False, True):
            yield Candidate(_normalising(module, epsilon, from_one), trial)


def _normalising(module: Any, epsilon: float, from_one: bool) -> Forward:
    def forward(x: Tensor, *rest: Any, **more: Any) -> Any:
        if rest or more or x.dtype != module.weight.dtype:
            return type(module).forward(module, x, *rest, **more)
        return normalise(x, module.weight, epsilon, from_one=from_one)

    return forward


def _gates(module: nn.Module) -> Iterator[Candidate]:
    """For a layer of three products, two side by side, one of them through an activation."""
    names = ("gate_proj", "up_proj", "down_proj", "act_fn")
    first, second, last, shape = (getattr(module, name, None) for name in names)
    weight, width = getattr(first, "weight", None), getattr(first, "in_features", None)
    if first is None or second is None or last is None or not callable(shape) or width is None:
        return
    kinds = [p.dtype for p in module.parameters() if p.is_floating_point()]
    if isinstance(weight, Tensor) and weight.device.type in DEVICES and kinds:
        numbers = torch.linspace(-9, 9, 1000, device=weight.device)
        trial = _draw(4, width, device=weight.device).to(kinds[0])
        trial = trial * (2 / first(trial).std())  # where the activation bends
        for activation, function in ACTIVATIONS.items():
            if torch.allclose(shape(numbers), function(numbers), atol=1e-5):
                yield Candidate(_gating(module, activation), trial)


def _gating(module: Any, activation: str) -> Forward:
    def forward(x: Tensor, *rest: Any, **more: Any) -> Any:
        if rest or more:
            return type(module).forward(module, x, *rest, **more)
        return module.down_proj(gate(module.gate_proj(x), module.up_proj(x), activation))

    return forward


def _attentions(model: nn.Module) -> Iterator[tuple[FunctionType, torch.device]]:
    """The forward functions of layers that turn queries and keys by a function we know of."""
    for module in model.modules():
        forward = type(module).forward
        weight = next(module.parameters(), None)
        if (
            isinstance(forward, FunctionType)
            and ROTATION in forward.__code__.co_names
            and ROTATION in forward.__globals__
            and weight is not None
            and weight.device.type in DEVICES
        ):
            yield forward, weight.device


def _turned(forward: FunctionType, device: torch.device) -> FunctionType | None:
    """The same function, reading our rotation under the name of its own."""
    plain = forward.__globals__[ROTATION]

    def rotation(q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, *rest: Any, **more: Any) -> Any:
        if rest or more or not all(_rotates(x, cos, sin) for x in (q, k)):
            return plain(q, k, cos, sin, *rest, **more)
        return rotate(q, cos, sin), rotate(k, cos, sin)

    q, k = (_draw(1, 5, heads, 32, device=device).transpose(1, 2) for heads in (4, 2))
    angles = _draw(2, 1, 5, 32, device=device)
    try:
        if not all(map(_alike, rotation(q, k, *angles), plain(q, k, *angles))):
            return None
    except Exception as error:  # as above
        logger.info("The rotation of %s is not fused: %s", forward.__qualname__, error)
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
