"""What our kernels compute, slowly, by torch."""

from __future__ import annotations

from typing import Any

import torch


def normalise(x: Any, weight: Any, epsilon: float, *, from_one: bool) -> Any:
    rows = x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + epsilon)
    return (rows * (1 + weight.float())).to(x.dtype) if from_one else rows.to(x.dtype) * weight


def gate(x: Any, other: Any, activation: str) -> Any:
    functions = torch.nn.functional
    shaped = functions.silu(x) if activation == "silu" else functions.gelu(x, approximate="tanh")
    return shaped * other


def rotate(x: Any, cosine: Any, sine: Any) -> Any:
    left, right = x.chunk(2, dim=-1)
    return x * cosine[:, None] + torch.cat([-right, left], dim=-1) * sine[:, None]


def attend(q: Any, k: Any, v: Any, tiles: Any, keys: Any, scale: float, window: int | None) -> Any:
    """Attention over tiles, query by query."""
    mixed = torch.full_like(q, torch.nan)
    groups = q.shape[1] // k.shape[1]
    for first, count, seen, above, stem, root, listed, own in tiles.tolist():
        apart = keys[listed : listed + above - stem]
        for i in range(count):
            chain = own + torch.arange(seen - above)
            visible = torch.cat([root + torch.arange(stem), apart, chain])
            visible = visible[-window:] if window is not None else visible
            shown, values = (x[visible].repeat_interleave(groups, 1) for x in (k, v))
            share = torch.einsum("he,mhe->hm", q[first + i], shown * scale).softmax(-1)
            mixed[first + i] = torch.einsum("hm,mhe->he", share, values)
            seen += 1
    return mixed
