"""Finds the modules of a model whose small operations can be replaced by one kernel each.

Modules are recognized by what they compute, not by name. A module that has the parts of an RMS norm
or a gated MLP is run on random numbers, and so is the kernel. The kernel is used only if both
agree. The model itself stays unchanged: forward functions are replaced only while the harness runs
it (`replaced_forwards.py`), and the start-up check compares the result with the model's own forward
pass.
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

from lm_eval.models.huggingface.kernels.compiler import can_run_on
from lm_eval.models.huggingface.kernels.layers import apply_rotary, gated_activation, rms_norm
from lm_eval.models.huggingface.replaced_forwards import Forward

logger = logging.getLogger(__name__)

ROTATION = "apply_rotary_pos_emb"
"""The name in transformers of the function that applies rotary positions to queries and keys."""
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": functional.silu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
}
"""The activation functions that the kernel for gated MLPs supports."""
TRIAL_MAGNITUDES = (1e-4, 1e-2, 1.0, 10.0, 100.0)
"""Magnitudes of the random numbers on which modules and kernels are compared."""
KERNEL_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
"""The dtypes that the kernels support."""
MAX_NORM_WIDTH = 1 << 14
"""Maximum width of hidden states that the RMS norm kernel supports."""


def fuse(model: nn.Module) -> dict[nn.Module, Forward]:
    """Returns, by module, the forward functions with kernels that can replace the module's own.

    Modules for which no kernel agrees on random numbers are left out. The result is empty without
    Triton, and if several processes hold parts of the weights.
    """
    split = any(hasattr(weight, "device_mesh") for weight in model.parameters())
    if split:  # processes that hold parts of one model must all run the same code
        return {}
    forwards: dict[nn.Module, Forward] = {}
    with torch.inference_mode():
        attentions = dict(_rotary_attention_forwards(model))
        with_rotation = {
            forward: _with_fused_rotation(forward, weight) for forward, weight in attentions.items()
        }
        for module in model.modules():
            own = type(module).forward
            if "forward" in vars(module):  # third-party code replaced it
                continue
            if rotating := with_rotation.get(own):
                forwards[module] = MethodType(rotating, module)
                continue
            if fused := _fused_forward(module):
                forwards[module] = fused
    return forwards


class Candidate(NamedTuple):
    """A forward function that may compute the same as a module, and an input to compare both on."""

    forward: Forward
    trial: Tensor


def _fused_forward(module: nn.Module) -> Forward | None:
    """Returns the forward function with a kernel that agrees best with the module.

    Returns None if no kernel agrees within the rounding error.
    """
    near: list[tuple[float, Forward]] = []
    try:
        for forward, trial in (*_rms_norm_candidates(module), *_gated_mlp_candidates(module)):
            distance = _rounding_units(forward(trial), type(module).forward(module, trial))
            if distance <= 1:
                near.append((distance, forward))
    except Exception as error:  # both the module and the compiler are third-party code
        logger.info(
            "No fused kernel is used for %s, because comparing it with one raised %s: %s",
            type(module).__name__,
            type(error).__name__,
            error,
        )
        return None
    return min(near, key=lambda found: found[0])[1] if near else None


def _rounding_units(one: Tensor, other: Tensor) -> float:
    """Returns the largest relative difference between rows, in units of the rounding error.

    Up to 1, rounding explains the difference. Small rows count as much as large ones, because rows
    that are small here may be large for other inputs. Rows of `other` that overflow are ignored.
    Returns infinity if shapes or dtypes differ, or at least half of the rows overflow.
    """
    if one.dtype != other.dtype or one.shape != other.shape:
        return math.inf
    digit = torch.finfo(one.dtype).eps
    # Sums in float32 depend on the order of the terms.
    tolerance = digit if digit > 1e-6 else 4 * digit
    finite = other.isfinite().all(dim=-1)
    if finite.sum() <= finite.numel() // 2:
        return math.inf
    one, other = one[finite].double(), other[finite].double()
    off, allowed = (one - other).norm(dim=-1), tolerance * other.norm(dim=-1)
    worst = float(torch.where(off == 0, 0.0, off / allowed).max())
    return worst if worst >= 0 else math.inf  # NaN counts as different


def _random(*shape: int, device: torch.device) -> Tensor:
    """Returns normally distributed numbers, the same for equal shapes and devices.

    Does not use torch's global random generator.
    """
    return torch.randn(*shape, generator=torch.Generator(device).manual_seed(0), device=device)


def _trial_rows(width: int, device: torch.device) -> Tensor:
    """Returns random rows (one per magnitude in `TRIAL_MAGNITUDES`, `width`).

    They are neither centered nor uniform, so that it shows if a module clamps or centers its input,
    for example.
    """
    sizes = torch.tensor(TRIAL_MAGNITUDES, device=device)[:, None]
    slope = torch.linspace(0.25, 2, width, device=device)
    return (_random(len(TRIAL_MAGNITUDES), width, device=device) + 0.5) * sizes * slope


def _rms_norm_candidates(module: nn.Module) -> Iterator[Candidate]:
    """Yields forward functions that may replace a module built like an RMS norm.

    Such a module has one weight vector and an epsilon. For other modules, yields nothing.
    """
    weight = getattr(module, "weight", None)
    epsilon = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if (
        isinstance(weight, Tensor)
        and isinstance(epsilon, float)
        and len(list(module.parameters())) == 1
        and weight.ndim == 1
        and can_run_on(weight.device)
        and len(weight) <= MAX_NORM_WIDTH
    ):
        trial = _trial_rows(len(weight), weight.device).to(weight.dtype)
        for weight_plus_one in (False, True):
            yield Candidate(_rms_norm_forward(module, epsilon, weight_plus_one), trial)


def _rms_norm_forward(module: Any, epsilon: float, weight_plus_one: bool) -> Forward:
    """Returns a forward function that uses the kernel where possible, and the module otherwise."""

    def forward(x: Tensor, *rest: Any, **more: Any) -> Any:
        weight = module.weight
        if rest or more or x.dtype != weight.dtype or x.shape[-1] != len(weight):
            return type(module).forward(module, x, *rest, **more)
        return rms_norm(x, weight, epsilon, weight_plus_one=weight_plus_one)

    return forward


def _gated_mlp_candidates(module: nn.Module) -> Iterator[Candidate]:
    """Yields forward functions that may replace a module with the parts of a gated MLP.

    These are two parallel projections, an activation function for the first, and a third
    projection. For other modules, yields nothing.
    """
    names = ("gate_proj", "up_proj", "down_proj", "act_fn")
    first, second, last, activate = (getattr(module, name, None) for name in names)
    weight, width = getattr(first, "weight", None), getattr(first, "in_features", None)
    if first is None or second is None or last is None or not callable(activate) or width is None:
        return
    dtypes = [p.dtype for p in module.parameters() if p.is_floating_point()]
    if isinstance(weight, Tensor) and can_run_on(weight.device) and dtypes:
        numbers = torch.linspace(-9, 9, 1000, device=weight.device)
        trial = _trial_rows(width, weight.device)
        spread = first(trial[TRIAL_MAGNITUDES.index(1.0)].to(dtypes[0])[None]).float().std()
        # Covers the range in which activation functions are not linear, and beyond.
        trial = (trial * (2 / spread)).to(dtypes[0])
        for activation, function in ACTIVATIONS.items():
            if torch.allclose(activate(numbers), function(numbers), atol=1e-5):
                yield Candidate(_gated_mlp_forward(module, activation), trial)


def _gated_mlp_forward(module: Any, activation: str) -> Forward:
    """Returns a forward function that uses the kernel where possible, and the module otherwise."""
    activate = module.act_fn

    def forward(x: Tensor, *rest: Any, **more: Any) -> Any:
        if rest or more or module.act_fn is not activate or _has_hooks(activate):
            return type(module).forward(module, x, *rest, **more)
        return module.down_proj(
            gated_activation(module.gate_proj(x), module.up_proj(x), activation)
        )

    return forward


def _has_hooks(module: Any) -> bool:
    """Returns whether a module has hooks or a replaced forward, which the kernel would bypass."""
    hooks = ("_forward_hooks", "_forward_pre_hooks")
    return any(getattr(module, name, None) for name in hooks) or "forward" in vars(module)


def _rotary_attention_forwards(model: nn.Module) -> Iterator[tuple[FunctionType, Tensor]]:
    """Yields the forward functions of layers that rotate queries and keys, each with a weight.

    Such a function calls the function that is named `ROTATION` in transformers. The weight is one
    of the layer's.
    """
    for module in model.modules():
        forward = type(module).forward
        weight = next(module.parameters(), None)
        if (
            isinstance(forward, FunctionType)
            and ROTATION in forward.__code__.co_names
            and ROTATION in forward.__globals__
            and weight is not None
            and can_run_on(weight.device)
        ):
            yield forward, weight


def _with_fused_rotation(forward: FunctionType, like: Tensor) -> FunctionType | None:
    """Returns a copy of `forward` that calls our kernel in place of the function `ROTATION`.

    Returns None if both differ on random numbers. `like` is a weight of the layer, which determines
    the device and the dtype of these.
    """
    plain = forward.__globals__[ROTATION]

    def rotation(*given: Any, **named: Any) -> Any:
        if named or len(given) != 4 or not _can_rotate(*given):
            return plain(*given, **named)
        q, k, cosine, sine = given
        return apply_rotary(q, k, cosine, sine)

    dtype = like.dtype if like.dtype in KERNEL_DTYPES else torch.float32
    q, k = (
        _random(1, 5, heads, 32, device=like.device).to(dtype).transpose(1, 2) for heads in (4, 2)
    )
    angles = _random(2, 1, 5, 32, device=like.device).to(dtype)
    try:
        if max(map(_rounding_units, rotation(q, k, *angles), plain(q, k, *angles))) > 1:
            return None
    except Exception as error:  # as in `_fused_forward`
        logger.info(
            "No rotary kernel is used for %s, because comparing it with one raised %s: %s",
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


def _can_rotate(q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor) -> bool:
    """Returns whether the kernel supports these shapes, strides and dtypes."""
    return (
        q.ndim == k.ndim == 4
        and (q.shape[0], *q.shape[2:]) == (k.shape[0], *k.shape[2:])
        and cosine.shape == sine.shape == (cosine.shape[0], *q.shape[2:])
        and cosine.shape[0] in (1, q.shape[0])
        and q.stride(3) == k.stride(3) == cosine.stride(2) == sine.stride(2) == 1
        and cosine.stride() == sine.stride()
        and q.shape[3] % 2 == 0
        and q.dtype == k.dtype == cosine.dtype
        and q.dtype in KERNEL_DTYPES
    )
