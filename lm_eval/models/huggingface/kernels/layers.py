"""The small operations between a layer's matrix products, one kernel each.

Models compose them of single torch operations, each of which reads and writes all hidden states:
six for a normalisation, ten for a rotation. The kernels round numbers where those operations do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval.models.huggingface.kernels.compiler import tl, triton

GATE_BLOCK = 2048
NORM_BLOCK = 1024
"""Minimum of numbers that one program normalises; it takes several rows if they are short."""


def normalise(x: Tensor, weight: Tensor, epsilon: float, *, from_one: bool) -> Tensor:
    """Returns rows divided by their root mean square, times the weight.

    With `from_one` the factor is 1 + weight, and the product is rounded once (Gemma); otherwise
    rows are rounded before the multiplication (Llama).
    """
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    width = rows.shape[1]
    block = triton.next_power_of_2(width)
    at_once = max(1, NORM_BLOCK // block)
    with torch.cuda.device(x.device):
        _normalise[(triton.cdiv(len(rows), at_once),)](
            rows, weight, out, len(rows), width, epsilon, at_once, block, from_one,
            num_warps=min(16, max(4, at_once * block // 512)),
        )  # fmt: skip
    return out.view(x.shape)


def gate(x: Tensor, other: Tensor, activation: str) -> Tensor:
    """Returns `activation(x) * other`, for "silu" and "gelu_tanh"."""
    x, other = x.contiguous(), other.contiguous()
    out = torch.empty_like(x)
    with torch.cuda.device(x.device):
        _gate[(triton.cdiv(x.numel(), GATE_BLOCK),)](
            x, other, out, x.numel(), GATE_BLOCK, activation == "silu", num_warps=8
        )
    return out


def rotate(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Rotates heads (B, H, N, E) by angles (B, N, E): `x * cosine + half_turned(x) * sine`."""
    out = torch.empty_like(x)
    batch, heads, count, width = x.shape
    with torch.cuda.device(x.device):
        _rotate[(batch * count,)](
            x, cosine, sine, out, count, heads,
            x.stride(0), x.stride(1), x.stride(2),
            out.stride(0), out.stride(1), out.stride(2),
            cosine.stride(0) if cosine.shape[0] > 1 else 0, cosine.stride(1),
            width // 2, triton.next_power_of_2(heads), triton.next_power_of_2(width // 2),
            num_warps=4, enable_fp_fusion=False,  # rounding in between, as single operations do
        )  # fmt: skip
    return out


if triton is not None:
    # Numbers of rows change from batch to batch, and must not each be compiled for. A gate's count
    # must: only where it is known to be even are numbers read several at a time.

    @triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
    def _normalise(  # type: ignore[no-untyped-def]
        x, weight, out, rows, width, epsilon,
        at_once: tl.constexpr, block: tl.constexpr, from_one: tl.constexpr,
    ):  # fmt: skip
        row = (tl.program_id(0).to(tl.int64) * at_once + tl.arange(0, at_once))[:, None]
        column = tl.arange(0, block)[None, :]
        inside = (row < rows) & (column < width)
        raw = tl.load(x + row * width + column, mask=inside, other=0.0)
        value = raw.to(tl.float32)
        mean = tl.sum(value * value, 1)[:, None] / width
        value = value * tl.rsqrt(mean + epsilon)
        scale = tl.load(weight + column, mask=column < width, other=0.0)
        if from_one:
            value = value * (1.0 + scale.to(tl.float32))
        else:
            value = value.to(raw.dtype).to(tl.float32) * scale.to(tl.float32)
        tl.store(out + row * width + column, value.to(raw.dtype), mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _gate(x, other, out, count, block: tl.constexpr, silu: tl.constexpr):  # type: ignore[no-untyped-def]
        place = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
        inside = place < count
        raw = tl.load(x + place, mask=inside, other=0.0)
        value = raw.to(tl.float32)
        if silu:
            value = value / (1.0 + tl.exp(-value))
        else:
            inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
            value = value / (1.0 + tl.exp(-2.0 * inner))
        value = value.to(raw.dtype).to(tl.float32)
        value = value * tl.load(other + place, mask=inside, other=0.0).to(tl.float32)
        tl.store(out + place, value.to(raw.dtype), mask=inside)

    @triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
    def _rotate(  # type: ignore[no-untyped-def]
        x, cosine, sine, out, count, heads,
        x_batch, x_head, x_row, out_batch, out_head, out_row, angle_batch, angle_row,
        half: tl.constexpr, most_heads: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """One program per token: all its heads, the two halves of each side by side."""
        token = tl.program_id(0).to(tl.int64)
        batch, row = token // count, token % count
        head = tl.arange(0, most_heads)[:, None]
        column = tl.arange(0, block)[None, :]
        inside = (head < heads) & (column < half)
        source = x + batch * x_batch + row * x_row + head * x_head + column
        target = out + batch * out_batch + row * out_row + head * out_head + column
        angle = batch * angle_batch + row * angle_row + column
        left = tl.load(source, mask=inside, other=0.0)
        right = tl.load(source + half, mask=inside, other=0.0)
        kind = left.dtype
        left, right = left.to(tl.float32), right.to(tl.float32)
        cos = tl.load(cosine + angle, mask=column < half, other=0.0).to(tl.float32)
        sin = tl.load(sine + angle, mask=column < half, other=0.0).to(tl.float32)
        first = (left * cos).to(kind).to(tl.float32) - (right * sin).to(kind).to(tl.float32)
        tl.store(target, first.to(kind), mask=inside)
        cos = tl.load(cosine + angle + half, mask=column < half, other=0.0).to(tl.float32)
        sin = tl.load(sine + angle + half, mask=column < half, other=0.0).to(tl.float32)
        second = (right * cos).to(kind).to(tl.float32) + (left * sin).to(kind).to(tl.float32)
        tl.store(target + half, second.to(kind), mask=inside)
