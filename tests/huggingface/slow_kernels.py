"""Slow replacements of our GPU kernels, written in torch, for tests without a GPU."""

from __future__ import annotations

from typing import Any

import torch

from lm_eval.models.huggingface.attention import AttentionSettings


def rms_norm(x: Any, weight: Any, epsilon: float, *, weight_plus_one: bool) -> Any:
    rows = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + epsilon)
    return (
        (rows * (1 + weight.float())).to(x.dtype) if weight_plus_one else rows.to(x.dtype) * weight
    )


def gated_activation(x: Any, other: Any, activation: str) -> Any:
    functions = torch.nn.functional
    shaped = functions.silu(x) if activation == "silu" else functions.gelu(x, approximate="tanh")
    return shaped * other


def apply_rotary(q: Any, k: Any, cosine: Any, sine: Any) -> Any:
    halves = [x.chunk(2, dim=-1) for x in (q, k)]
    turned = [torch.cat([-right, left], dim=-1) for left, right in halves]
    rotated = [x * cosine[:, None] + y * sine[:, None] for x, y in zip((q, k), turned, strict=True)]
    return tuple(rotated)


def attend(q: Any, k: Any, v: Any, tiles: Any, keys: Any, settings: AttentionSettings) -> Any:
    """Computes attention over tiles, one query at a time."""
    mixed = torch.full_like(q, torch.nan)
    groups = q.shape[1] // k.shape[1]
    for first, count, seen, above, stem, root, listed, own in tiles.tolist():
        apart = keys[listed : listed + above - stem]
        for i in range(count):
            chain = own + torch.arange(seen - above)
            visible = torch.cat([root + torch.arange(stem), apart, chain])
            visible = visible[-settings.window :] if settings.window is not None else visible
            shown, values = (x[visible].repeat_interleave(groups, 1) for x in (k, v))
            likeness = torch.einsum("he,mhe->hm", q[first + i], shown) * settings.scale_of(q)
            if settings.softcap is not None:
                likeness = settings.softcap * torch.tanh(likeness / settings.softcap)
            if settings.sinks is not None:
                likeness = torch.cat([likeness, settings.sinks.to(likeness)[:, None]], dim=1)
            share = likeness.softmax(-1)[:, : len(visible)]
            mixed[first + i] = torch.einsum("hm,mhe->he", share, values)
            seen += 1
    return mixed
