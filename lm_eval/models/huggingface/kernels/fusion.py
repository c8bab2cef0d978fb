"""Finds modules of a model whose small operations one kernel each can compute.

Modules are recognised by what they compute, not by name: one that is built like a normalisation or
a gated layer is run beside the kernel on random numbers, and the kernel stands in for it only where
both agree. The model itself stays unchanged: forwards are replaced while we run it
(`replaced_forwards.py`), and the start-up check compares the whole with the model's own pass.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from lm_eval.models.huggingface.kernels.compiler import triton
from lm_eval.models.huggingface.kernels.layers import gate, normalise, rotate
from lm_eval.models.huggingface.replaced_forwards import Forward

logger = logging.getLogger(__name__)

ROTATION = "apply_rotary_pos_emb"
"""The name in transformers of the function that applies rotary positions to queries and keys."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}
DEVICES = ("cuda",)
"""Device types that the kernels run on."""
SIZES = (1e-4, 1e-2, 1.0, 10.0, 100.0)
"""Magnitudes of the numbers that modules are tried on."""
KINDS = (torch.float32, torch.bfloat16, torch.float16)
"""Number formats of the kernels."""
LONGEST_ROW = 1 << 14
"""Widest hidden state that one program can normalise."""


def fuse(model: nn.Module) -> dict[nn.Module, Forward]:
    """Returns the forward functions that can stand in for those of a model's modules on a GPU."""
    apart = any(hasattr(weight, "device_mesh") for weight in model.parameters())
    if triton is None or apart:  # processes that hold parts of one model must all do the same
        return {}
    forwards: dict[nn.Module, Forward] = {}
    with torch.inference_mode():
        attentions = dict(_attentions(model))
        turned = {forward: _turned(forward, weight) for forward, weight in attentions.items()}
        for module in model.modules():
            own = type(module).forward
            if "forward" in vars(module):  # third-party code replaced it
                continue
            if rotating := turned.get(own):
                forwards[module] = MethodType(rotating, module)
                continue
            if stand_in := _stand_in(module):
                forwards[module] = stand_in
    return forwards


class Candidate(NamedTuple):
    """A forward function that may compute what a module does, and an input to compare both on."""

    forward: Forward
    trial: Tensor


def _stand_in(module: nn.Module) -> Forward | None:
    """Returns the function closest to the module's own forward; None if none is close enough."""
    near: list[tuple[float, Forward]] = []
    try:
        for forward, trial in (*_normalisations(module), *_gates(module)):
            distance = _distance(forward(trial), type(module).forward(module, trial))
            if distance <= 1:
                near.append((distance, forward))
    except Exception as error:  # the module is third-party code, the kernel's compiler another
        logger.info(
            "%s runs without a kernel: %s: %s", type(module).__name__, type(error).__name__, error
        )
        return None
    return min(near, key=lambda found: found[0])[1] if near else None


def _distance(one: Tensor, other: Tensor) -> float:
    """Returns the largest relative difference of a row, in units of what rounding explains.

    Small rows count as much as large ones: what is small here may be large for other input. Rows
    that overflow are ignored.
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return math.inf
    digit = torch.finfo(one.dtype).eps
    tolerance = digit if digit > 1e-6 else 4 * digit  # sums of float32 depend on their order
    finite = other.isfinite().all(dim=-1)
    if finite.sum() <= finite.numel() // 2:
        return math.inf
    one, other = one[finite].double(), other[finite].double()
    off, allowed = (one - other).norm(dim=-1), tolerance * other.norm(dim=-1)
    worst = float(torch.where(off == 0, 0.0, off / allowed).max())
    return worst if worst >= 0 else math.inf  # NaN is not near


def _draw(*shape: int, device: torch.device) -> Tensor:
    """Returns random numbers without touching torch's global generator."""
    return torch.randn(*shape, generator=torch.Generator(device).manual_seed(0), device=device)


def _rows(width: int, device: torch.device) -> Tensor:
    """Returns random rows of many magnitudes, off zero and uneven: clamps and centring show."""
    sizes = torch.tensor(SIZES, device=device)[:, None]
    slope = torch.linspace(0.25, 2, width, device=device)
    return (_draw(len(SIZES), width, device=device) + 0.5) * sizes * slope


def _normalisations(module: nn.Module) -> Iterator[Candidate]:
    """Yields candidates for a module built like an RMS norm: one weight, no children."""
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
        trial = _rows(len(weight), weight.device).to(weight.dtype)
        for from_one in (False, True):
            yield Candidate(_normalising(module, epsilon, from_one), trial)


def _normalising(module: Any, epsilon: float, from_one: bool) -> Forward:
    def forward(x: Tensor, *rest: Any, **more: Any) -> Any:
        weight = module.weight
        if rest or more or x.dtype != weight.dtype or x.shape[-1] != len(weight):
            return type(module).forward(module, x, *rest, **more)
        return normalise(x, weight, epsilon, from_one=from_one)

    return forward


def _gates(module: nn.Module) -> Iterator[Candidate]:
    """Yields candidates for a gated layer: two parallel projections, one activated, and a third."""
    names = ("gate_proj", "up_proj", "down_proj", "act_fn")
    first, second, last, shape = (getattr(module, name, None) for name in names)
    weight, width = getattr(first, "weight", None), getattr(first, "in_features", None)
    if first is None or second is None or last is None or not callable(shape) or width is None:
        return
    kinds = [p.dtype for p in module.parameters() if p.is_floating_point()]
    if isinstance(weight, Tensor) and weight.device.type in DEVICES and kinds:
        numbers = torch.linspace(-9, 9, 1000, device=weight.device)
        trial = _rows(width, weight.device)
        loud = first(trial[SIZES.index(1.0)].to(kinds[0])[None]).float().std()
        trial = (trial * (2 / loud)).to(kinds[0])  # where activations bend, and far from there
        for activation, function in ACTIVATIONS.items():
            if torch.allclose(shape(numbers), function(numbers), atol=1e-5):
                yield Candidate(_gating(module, activation), trial)


def _gating(module: Any, activation: str) -> Forward:
    shape = module.act_fn

    def forward(x: Tensor, *rest: Any, **more: Any) -> Any:
        if rest or more or module.act_fn is not shape or _is_watched(shape):
            return type(module).forward(module, x, *rest, **more)
        return module.down_proj(gate(module.gate_proj(x), module.up_proj(x), activation))

    return forward


def _is_watched(module: Any) -> bool:
    """Whether a module has hooks or a replaced forward, which the kernel would bypass."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return any(getattr(module, name, None) for name in hooks) or "forward" in vars(module)


def _attentions(model: nn.Module) -> Iterator[tuple[FunctionType, Tensor]]:
    """Yields the forward functions of layers that call `ROTATION`, each with one of its weights."""
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
            yield forward, weight


def _turned(forward: FunctionType, like: Tensor) -> FunctionType | None:
    """Returns the same function with our kernel in the place of `ROTATION`; None if they differ."""
    plain = forward.__globals__[ROTATION]

    def rotation(*given: Any, **named: Any) -> Any:
        if named or len(given) != 4 or not all(_rotates(x, *given[2:]) for x in given[:2]):
            return plain(*given, **named)
        q, k, cosine, sine = given
        return rotate(q, cosine, sine), rotate(k, cosine, sine)

    kind = like.dtype if like.dtype in KINDS else torch.float32
    q, k = (_draw(1, 5, heads, 32, device=like.device).to(kind).transpose(1, 2) for heads in (4, 2))
    angles = _draw(2, 1, 5, 32, device=like.device).to(kind)
    try:
        if max(map(_distance, rotation(q, k, *angles), plain(q, k, *angles))) > 1:
            return None
    except Exception as error:  # as above
        logger.info(
            "The rotation of %s runs without a kernel: %s: %s",
            forward.__qualname__,
            type(error).__name__,
            error,
        )
        return None
    names = {**forward.__globals__, ROTATION: rotation}
    made = FunctionType(
        forward.__code__, names, forward.__name__, forward.__defaults__, forward.__closure__
    )
    made.__kwdefaults__ = forward.__kwdefaults__
    return made


def _rotates(x: Tensor, cosine: Tensor, sine: Tensor) -> bool:
    """Whether the kernel supports these shapes."""
    return (
        x.ndim == 4
        and cosine.shape == sine.shape == (cosine.shape[0], x.shape[2], x.shape[3])
        and cosine.shape[0] in (1, x.shape[0])
        and x.stride(3) == cosine.stride(2) == sine.stride(2) == 1
        and cosine.stride() == sine.stride()
        and x.shape[3] % 2 == 0
        and x.dtype == cosine.dtype
        and x.dtype in KINDS
    )
