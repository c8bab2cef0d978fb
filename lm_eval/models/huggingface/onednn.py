"""Matrix products by oneDNN on CPUs on which torch's own choice, MKL, is slow.

torch multiplies float32 matrices with Intel's MKL, which uses AVX-512 on Intel CPUs only. On other
CPUs that have AVX-512, oneDNN, which is part of torch too, takes about half the time for large
products. Both compute in float32; only the order in which they add differs.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from lm_eval.models.huggingface.replaced_forwards import Forward

logger = logging.getLogger(__name__)

MIN_MULTIPLICATIONS = 1 << 20
"""Smaller products are left to MKL, because a call of oneDNN takes some microseconds longer."""
MIN_TRANSPOSED_ROWS = 4
"""With fewer rows, MKL is faster if the weights are stored transposed."""
LINEAR = ("torch.nn.modules.linear.Linear",)
TRANSPOSED = ("transformers.pytorch_utils.Conv1D",)
"""The classes of linear layers; those of the second kind store their weights transposed (GPT-2)."""
CACHE_VARIABLES = ("LRU_CACHE_CAPACITY", "ONEDNN_PRIMITIVE_CACHE_CAPACITY")
CACHED_PRODUCTS = 64
"""How many compiled products oneDNN keeps. Each number of rows needs another one, of about 1 MB,
and its own limit is over a thousand."""
CPU_FACTS = Path("/proc/cpuinfo")
"""The file in which Linux describes the CPU."""


def is_faster() -> bool:
    """Returns whether this process should multiply matrices with oneDNN.

    The answer depends on the machine and on torch's settings alone, and not on a measurement, so
    that scores are the same in every run.
    """
    return bool(torch.backends.mkldnn.enabled) and _is_faster_here()


@cache
def _is_faster_here() -> bool:
    if not (
        hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and torch.backends.mkldnn.is_available()
        and torch.backends.mkl.is_available()
        and torch.backends.cpu.get_cpu_capability().startswith("AVX512")
        and "GenuineIntel" not in _cpu_description()
    ):
        return False
    _limit_cached_products()
    return _multiplies_correctly()


def _limit_cached_products() -> None:
    """Limits the memory of oneDNN, if the user has not; it has to be done before its first use."""
    for name in CACHE_VARIABLES:
        os.environ.setdefault(name, str(CACHED_PRODUCTS))


def _multiplies_correctly() -> bool:
    """Returns whether oneDNN's function, which torch keeps private, still does what we expect."""
    kind: dict[str, Any] = {"dtype": torch.float32, "device": "cpu"}
    x, weight = torch.eye(4, **kind), torch.arange(16, **kind).view(4, 4)
    try:
        found = multiply(x, weight, torch.ones(4, **kind))
        return bool(torch.equal(found, weight.t() + 1))
    except (RuntimeError, TypeError) as error:
        logger.warning("oneDNN is not used for matrix products: %s", error)
        return False


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Returns `x @ weight.T + bias`, computed by oneDNN."""
    return cast(Tensor, torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], ""))


def _cpu_description() -> str:
    """Returns a text that names the vendor of the CPU."""
    try:
        return CPU_FACTS.read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        return platform.processor()


def linear_forwards(modules: Iterable[nn.Module]) -> dict[nn.Module, Forward]:
    """Returns, by module, forward functions that use oneDNN, for the linear layers of `modules`.

    They use the layer's current weights, and the layer's own function for what oneDNN does not
    support. The result is empty if oneDNN is not faster on this machine.
    """
    if not is_faster():
        return {}
    return {
        module: _forward(module, transposed=_class_name(module) in TRANSPOSED)
        for module in modules
        if is_linear(module) and module.weight.device.type == "cpu"
    }


def is_linear(module: nn.Module) -> bool:
    """Returns whether a module is a linear layer that oneDNN can compute."""
    return _class_name(module) in (*LINEAR, *TRANSPOSED)


def _class_name(module: nn.Module) -> str:
    return f"{type(module).__module__}.{type(module).__qualname__}"


def _forward(module: Any, *, transposed: bool) -> Forward:
    min_rows = MIN_TRANSPOSED_ROWS if transposed else 1

    def product(x: Tensor) -> Tensor:
        if not _supports(x, module.weight, module.bias, min_rows):
            return cast(Tensor, type(module).forward(module, x))
        return multiply(x, module.weight.t() if transposed else module.weight, module.bias)

    def linear(input: Tensor) -> Tensor:  # the parameters have the names of the modules' own ones
        return product(input)

    def conv1d(x: Tensor) -> Tensor:
        return product(x)

    return conv1d if transposed else linear


def _supports(x: Tensor, weight: Tensor, bias: Tensor | None, min_rows: int) -> bool:
    """Returns whether oneDNN computes this product, and is faster than MKL."""
    return (
        x.dtype == torch.float32
        and x.device.type == "cpu"
        and all(_is_plain(part) for part in (weight, bias) if part is not None)
        and x.ndim >= 2
        and x.numel() >= min_rows * x.shape[-1]
        and x.numel() * weight.numel() >= MIN_MULTIPLICATIONS * x.shape[-1]
        and not torch.is_autocast_enabled("cpu")
        and not torch.is_grad_enabled()
    )


def _is_plain(weight: Tensor) -> bool:
    """Returns whether oneDNN can use these weights.

    It is very slow for weights with gaps in memory, and ignores those of a bias.
    """
    return (
        type(weight) in (Tensor, nn.Parameter)  # and not a quantized or distributed tensor
        and weight.dtype == torch.float32
        and weight.device.type == "cpu"
        and weight.is_contiguous()
    )
