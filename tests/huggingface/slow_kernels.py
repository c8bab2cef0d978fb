"""What our kernels compute, slowly, by torch."""

from __future__ import annotations

from typing import Any

import torch

from lm_eval.models.huggingface.attention import Form


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


def attend(q: Any, k: Any, v: Any, tiles: Any, keys: Any, form: Form) -> Any:
    """Attention over tiles, query by query."""
    mixed = torch.full_like(q, torch.nan)
    groups = q.shape[1] // k.shape[1]
    for first, count, seen, above, stem, root, listed, own in tiles.tolist():
        apart = keys[listed : listed + above - stem]
        for i in range(count):
            chain = own + torch.arange(seen - above)
            visible = torch.cat([root + torch.arange(stem), apart, chain])
            visible = visible[-form.window :] if form.window is not None else visible
            shown, values = (x[visible].repeat_interleave(groups, 1) for x in (k, v))
            likeness = torch.einsum("he,mhe->hm", q[first + i], shown) * form.scale_of(q)
            if form.softcap is not None:
                likeness = form.softcap * torch.tanh(likeness / form.softcap)
            if form.sinks is not None:
                likeness = torch.cat([likeness, form.sinks.to(likeness)[:, None]], dim=1)
            share = likeness.softmax(-1)[:, : len(visible)]
            mixed[first + i] = torch.einsum("hm,mhe->he", share, values)
            seen += 1
    return mixed
