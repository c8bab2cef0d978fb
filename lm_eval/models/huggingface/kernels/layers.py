"""The small operations between a layer's matrix products, with one kernel for each.

Models compose them of single torch operations, each of which reads and writes all hidden states:
six for an RMS norm, ten for rotary embeddings. The kernels round numbers at the same places as
these operations.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval.models.huggingface.kernels.compiler import tl, triton

GATE_BLOCK = 2048
"""Maximum number of elements of a row that one program of the gated activation computes."""
NORM_BLOCK = 1024
"""Minimum number of elements that one program normalizes: several rows if they are short."""


def rms_norm(x: Tensor, weight: Tensor, epsilon: float, *, weight_plus_one: bool) -> Tensor:
    """Returns each row (last dimension) of `x` divided by its root mean square, times the weight.

    `epsilon` is added to the mean square. With `weight_plus_one` the factor is 1 + weight, and only
    the product is rounded (Gemma). Otherwise rows are rounded before the multiplication (Llama).
    """
    rows = x.reshape(-1, x.shape[-1])
    out = torch.empty_like(rows)
    width = rows.shape[1]
    block = triton.next_power_of_2(width)
    at_once = max(1, NORM_BLOCK // block)
    with torch.cuda.device_of(x):
        _rms_norm[(triton.cdiv(len(rows), at_once),)](
            rows, weight, out, len(rows), width, epsilon, at_once, block, weight_plus_one,
            num_warps=min(16, max(4, at_once * block // 512)),
        )  # fmt: skip
    return out.view(x.shape)


def gated_activation(x: Tensor, other: Tensor, activation: str) -> Tensor:
    """Returns `activation(x) * other`; `activation` is "silu" or "gelu_tanh".

    Both may be parts of the rows of one tensor.
    """
    rows, others = x.reshape(-1, x.shape[-1]), other.reshape(-1, x.shape[-1])
    if not rows.stride(1) == others.stride(1) == 1:
        rows, others = rows.contiguous(), others.contiguous()
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    count, width = rows.shape
    block = min(GATE_BLOCK, triton.next_power_of_2(width))
    with torch.cuda.device_of(x):
        _gated_activation[(count, triton.cdiv(width, block))](
            rows, others, out, rows.stride(0), others.stride(0), width, block,
            activation == "silu", num_warps=max(1, block // 256),
        )  # fmt: skip
    return out


def apply_rotary(q: Tensor, k: Tensor, cosine: Tensor, sine: Tensor) -> tuple[Tensor, Tensor]:
    """Returns queries and keys (B, H, N, E) with rotary position embeddings applied.

    They may differ in the number of heads. `cosine` and `sine` are (B, N, E), or (1, N, E) for all
    sequences. The result is `x * cosine + rotate_half(x) * sine`, where `rotate_half` puts the
    negated second half of each head before the first.
    """
    out_q, out_k = torch.empty_like(q), torch.empty_like(k)
    batch, _, count, width = q.shape
    most_heads = triton.next_power_of_2(max(q.shape[1], k.shape[1]))
    with torch.cuda.device_of(q):
        _apply_rotary[(batch * count, 2)](
            q, k, cosine, sine, out_q, out_k, count, q.shape[1], k.shape[1],
            *q.stride()[:3], *k.stride()[:3], *out_q.stride()[:3], *out_k.stride()[:3],
            cosine.stride(0) if cosine.shape[0] > 1 else 0, cosine.stride(1),
            width // 2, most_heads, triton.next_power_of_2(width // 2),
            num_warps=4, enable_fp_fusion=False,  # rounds after each operation, as torch does
        )  # fmt: skip
    return out_q, out_k


if triton is not None:
    # The number of rows changes from batch to batch, and the kernels must not be compiled anew for
    # each.

    @triton.jit(do_not_specialize=["rows"])  # type: ignore[untyped-decorator]
    def _rms_norm(  # type: ignore[no-untyped-def]
        x, weight, out, rows, width, epsilon,
        at_once: tl.constexpr, block: tl.constexpr, weight_plus_one: tl.constexpr,
    ):  # fmt: skip
        row = (tl.program_id(0).to(tl.int64) * at_once + tl.arange(0, at_once))[:, None]
        column = tl.arange(0, block)[None, :]
        inside = (row < rows) & (column < width)
        raw = tl.load(x + row * width + column, mask=inside, other=0.0)
        value = raw.to(tl.float32)
        mean = tl.sum(value * value, 1)[:, None] / width
        value = value * tl.rsqrt(mean + epsilon)
        scale = tl.load(weight + column, mask=column < width, other=0.0)
        if weight_plus_one:
            value = value * (1.0 + scale.to(tl.float32))
        else:
            value = value.to(raw.dtype).to(tl.float32) * scale.to(tl.float32)
        tl.store(out + row * width + column, value.to(raw.dtype), mask=inside)

    @triton.jit  # type: ignore[untyped-decorator]
    def _gated_activation(  # type: ignore[no-untyped-def]
        x, other, out, x_row, other_row, width, block: tl.constexpr, silu: tl.constexpr
    ):
        row = tl.program_id(0).to(tl.int64)
        column = tl.program_id(1) * block + tl.arange(0, block)
        inside = column < width
        raw = tl.load(x + row * x_row + column, mask=inside, other=0.0)
        value = raw.to(tl.float32)
        if silu:
            value = value / (1.0 + tl.exp(-value))
        else:
            inner = 0.7978845608028654 * (value + 0.044715 * value * value * value)
            value = value / (1.0 + tl.exp(-2.0 * inner))
        value = value.to(raw.dtype).to(tl.float32)
        factor = tl.load(other + row * other_row + column, mask=inside, other=0.0)
        value = value * factor.to(tl.float32)
        tl.store(out + row * width + column, value.to(raw.dtype), mask=inside)

    @triton.jit(do_not_specialize=["count"])  # type: ignore[untyped-decorator]
    def _apply_rotary(  # type: ignore[no-untyped-def]
        q, k, cosine, sine, out_q, out_k, count, q_heads, k_heads,
        q_batch, q_head, q_row, k_batch, k_head, k_row,
        out_q_batch, out_q_head, out_q_row, out_k_batch, out_k_head, out_k_row,
        angle_batch, angle_row,
        half: tl.constexpr, most_heads: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """Rotates all query heads or key heads of one token.

        The two halves of each head are loaded side by side.
        """
        token = tl.program_id(0).to(tl.int64)
        batch, row = token // count, token % count
        head = tl.arange(0, most_heads)[:, None]
        column = tl.arange(0, block)[None, :]
        angle = batch * angle_batch + row * angle_row + column
        if tl.program_id(1) == 0:
            inside = (head < q_heads) & (column < half)
            source = q + batch * q_batch + row * q_row + head * q_head + column
            target = out_q + batch * out_q_batch + row * out_q_row + head * out_q_head + column
        else:
            inside = (head < k_heads) & (column < half)
            source = k + batch * k_batch + row * k_row + head * k_head + column
            target = out_k + batch * out_k_batch + row * out_k_row + head * out_k_head + column
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
