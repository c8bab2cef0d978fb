"""Attention for packed prefix trees, registered as an attention function of transformers.

transformers has a registry of attention functions, and models look theirs up by name at every call.
Ours (`switched_on`) ignores masks: while it is active, a `Layout` decides which of the packed
tokens attend to which. Every layer passes its queries, keys and values to the layout, which can
therefore also store keys and values.

Shapes: N packed tokens, M keys, H query heads, K key heads, E width of a head.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface

NAME = "lm_eval_tree"

#: Extras some models hand to attention functions, which change the result in ways unknown here.
UNKNOWN_EXTRAS = ("position_bias", "head_mask", "alibi")


class Form(NamedTuple):
    """A layer's attention settings."""

    scale: float | None = None
    window: int | None = None
    """Size of the sliding window, the token itself included."""
    softcap: float | None = None
    """Soft limit of attention scores (Gemma 2)."""
    sinks: Tensor | None = None
    """Attention sinks: one score per head that takes part in the softmax only (GPT-OSS)."""

    @property
    def usual(self) -> bool:
        """Whether torch has functions for this attention."""
        return self.softcap is None and self.sinks is None

    def scale_of(self, q: Tensor) -> float:
        return q.shape[-1] ** -0.5 if self.scale is None else self.scale


class Attend(NamedTuple):
    """Which kernels for GPUs in half precision may be used."""

    kernels: bool = False
    """Ours for trees (`kernels/attention.py`)."""
    flash: bool = False
    """torch's flash kernel for rows of answers."""


NO_KERNELS = Attend()


class Layout(Protocol):
    """Decides which tokens attend to which."""

    def attend(self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, form: Form) -> Tensor:
        """Returns mixed values (…, H, N, E).

        Queries are (1 or B, H, N, E), keys and values (…, K, N, E).
        """
        ...


class UnsupportedAttentionError(RuntimeError):
    """The model uses an attention feature that layouts do not support."""


class _Active(threading.local):
    """The stack of active layouts of each thread."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []


_active = _Active()
running = threading.RLock()
"""Held while a model runs: its configuration, which names the attention function, is shared by all
threads."""


def _attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **extras: Any,
) -> tuple[Tensor, None]:
    """The function that models call. Returns (B, N, H, E), as they expect."""
    for name in UNKNOWN_EXTRAS:
        if extras.get(name) is not None:
            raise UnsupportedAttentionError(f"attention with {name}")
    if s_aux is not None and s_aux.shape != (query.shape[1],):
        raise UnsupportedAttentionError(f"sinks of shape {tuple(s_aux.shape)}")
    if not _active.layouts:
        raise UnsupportedAttentionError(
            "this model is being evaluated in another thread; call it afterwards, or evaluate it "
            "with prefix_sharing=False"
        )
    form = Form(scaling, sliding_window, softcap, s_aux)
    mixed = _active.layouts[-1].attend(module, query, key, value, form)
    return mixed.transpose(1, 2), None


AttentionInterface.register(NAME, _attention)


@contextmanager
def switched_on(configs: Sequence[Any], layout: Layout) -> Iterator[None]:
    """Lets the models that read these configurations attend by a layout inside the `with` block.

    The configuration is where transformers looks the attention function up, at every call, so it is
    set there and restored at the end.
    """
    with running:
        before = [config._attn_implementation for config in configs]
        _active.layouts.append(layout)
        try:
            for config in configs:
                config._attn_implementation_internal = NAME
            yield
        finally:
            for config, name in zip(configs, before, strict=True):
                config._attn_implementation_internal = name
            _active.layouts.pop()


def configs_of(model: nn.Module) -> list[Any]:
    """Returns the distinct configurations in which a model's modules look up their attention."""
    found = {
        id(config): config
        for module in model.modules()
        if hasattr(config := getattr(module, "config", None), "_attn_implementation_internal")
    }
    return list(found.values())


def masked_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, form: Form, *, causal: bool = False
) -> Tensor:
    """Returns attention under a mask that broadcasts to (B, H, N, M): True or 0 if visible."""
    if not form.usual:
        if causal:
            visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return _step_by_step(q, k, v, visible, form)
    mixed: Tensor = functional.scaled_dot_product_attention(
        q,
        k,
        v,
        attn_mask=visible,
        is_causal=causal,
        scale=form.scale,
        enable_gqa=q.shape[1] != k.shape[1],
    )
    return mixed


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    longest: int,
    most_keys: int,
    form: Form,
    used: Tensor | None = None,
) -> Tensor:
    """Returns attention of concatenated sequences, (N, H, E) over (M, K, E), in half precision.

    The last query of a sequence attends to all its keys, the one before it to all but one, and so
    on. `used` is the number of valid keys of each sequence, where there is room for more.
    """
    extras: dict[str, Any] = {} if used is None else {"seqused_k": used}
    if form.window is not None:
        extras |= {"window_size_left": form.window - 1, "window_size_right": 0}
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        starts,
        key_starts,
        longest,
        most_keys,
        0.0,
        True,
        False,
        scale=form.scale,
        **extras,
    )[0]
    return mixed


def _step_by_step(q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, form: Form) -> Tensor:
    """Returns attention with softcaps and sinks, by single torch operations."""
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = q @ k.transpose(2, 3) * form.scale_of(q)
    if form.softcap is not None:
        scores = torch.tanh(scores / form.softcap) * form.softcap
    if visible is not None:
        scores = scores.masked_fill(~visible.to(torch.bool), torch.finfo(scores.dtype).min)
    if form.sinks is not None:
        sinks = form.sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    share = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return share[..., : k.shape[2]] @ v
