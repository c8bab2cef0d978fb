"""Attention for packed prefix trees, registered as an attention function of transformers.

transformers has a registry of attention functions, in which models look up theirs by name at every
call. Inside `use_layout` a model calls ours, which ignores attention masks: the active `Layout`
decides which of the packed tokens attend to which. Every layer passes its queries, keys and values
to the layout, so the layout can also store keys and values.

Shapes: B sequences, N packed tokens, M keys, H query heads, K key heads, E width of a head.
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

#: Arguments that some models pass to attention functions; they change the result in ways that our
#: function does not implement.
UNSUPPORTED_ARGUMENTS = ("position_bias", "head_mask", "alibi")


class AttentionSettings(NamedTuple):
    """A layer's attention settings, as transformers passes them to its attention function."""

    scale: float | None = None
    """Factor of the attention scores; None for 1 / sqrt(E)."""
    window: int | None = None
    """Size of the sliding window, including the token itself; None for no window."""
    softcap: float | None = None
    """Soft limit of the attention scores (Gemma 2); None for no limit."""
    sinks: Tensor | None = None
    """Attention sinks (GPT-OSS): one score per head that takes part in the softmax only."""

    @property
    def supported_by_sdpa(self) -> bool:
        """Whether torch's `scaled_dot_product_attention` can compute this attention."""
        return self.softcap is None and self.sinks is None

    def scale_of(self, q: Tensor) -> float:
        """Returns the factor of the attention scores for the queries `q` (…, E)."""
        return q.shape[-1] ** -0.5 if self.scale is None else self.scale


class AttentionKernels(NamedTuple):
    """Which attention kernels may be used, on a GPU in half precision."""

    tree: bool = False
    """Our kernel for prefix trees (`kernels/attention.py`)."""
    flash: bool = False
    """torch's flash attention kernel for decoding answers."""


NO_KERNELS = AttentionKernels()


class Layout(Protocol):
    """Interface of attention layouts, which decide which of the packed tokens attend to which.

    `use_layout` makes a model call `attend` in place of its own attention function.
    """

    def attend(
        self, layer: nn.Module, q: Tensor, k: Tensor, v: Tensor, settings: AttentionSettings
    ) -> Tensor:
        """Returns the attention output (…, H, N, E) of one layer.

        Every layer calls it once per forward pass.

        Args:
            layer: the attention module; layouts use it as the key under which they store `k` and
                `v`.
            q: the queries (1 or B, H, N, E).
            k: the keys (…, K, N, E) of the packed tokens.
            v: the values (…, K, N, E) of the packed tokens.
            settings: the layer's attention settings.
        """
        ...


class UnsupportedAttentionError(RuntimeError):
    """The model uses an attention feature that layouts do not support."""


class _Active(threading.local):
    """The stack of active layouts of each thread."""

    def __init__(self) -> None:
        self.layouts: list[Layout] = []


_active = _Active()
model_lock = threading.RLock()
"""Held while a model runs. The model's configuration, which names its attention function, is shared
by all threads."""


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
    """Returns the attention output (B, N, H, E) of one layer, by the active layout, and None.

    Registered with transformers, so models call it inside `use_layout`. Shapes are explained at the
    top of this module. `attention_mask` and `dropout` are ignored: the layout decides which tokens
    attend to which. The None stands for the attention weights, which are not computed.

    Raises `UnsupportedAttentionError` for arguments that layouts do not support, and if this thread
    has no active layout; there is no fallback to the model's own attention.
    """
    for name in UNSUPPORTED_ARGUMENTS:
        if extras.get(name) is not None:
            raise UnsupportedAttentionError(
                f"the model passes {name} to its attention function, which prefix sharing does not "
                "support"
            )
    if s_aux is not None and s_aux.shape != (query.shape[1],):
        raise UnsupportedAttentionError(
            f"the model has attention sinks of shape {tuple(s_aux.shape)}; prefix sharing supports "
            "only one per head"
        )
    if not _active.layouts:
        raise UnsupportedAttentionError(
            "this model was called while another thread is evaluating it; call it after the "
            "evaluation, or evaluate it with prefix_sharing=False"
        )
    settings = AttentionSettings(scaling, sliding_window, softcap, s_aux)
    mixed = _active.layouts[-1].attend(module, query, key, value, settings)
    return mixed.transpose(1, 2), None


AttentionInterface.register(NAME, _attention)


@contextmanager
def use_layout(configs: Sequence[Any], layout: Layout) -> Iterator[None]:
    """Makes the models that use these configurations attend by `layout` inside the `with` block.

    transformers looks up the name of the attention function in the configuration at every call. So
    the name is set there, and restored at the end. Other threads that run a model through the
    harness wait meanwhile.
    """
    with model_lock:
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
    """Returns the distinct configurations in which the model's modules look up their attention."""
    found = {
        id(config): config
        for module in model.modules()
        if hasattr(config := getattr(module, "config", None), "_attn_implementation_internal")
    }
    return list(found.values())


def masked_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    visible: Tensor | None,
    settings: AttentionSettings,
    *,
    causal: bool = False,
) -> Tensor:
    """Returns the attention output (B, H, N, E).

    Args:
        q: the queries (B, H, N, E).
        k: the keys (B, K, M, E).
        v: the values (B, K, M, E).
        visible: a mask that broadcasts to (B, 1, N, M): True, or 0 if it is additive, for keys that
            a query attends to. It is the same for all heads, and must be boolean if the settings
            have a softcap or sinks. None for no mask.
        settings: the layer's attention settings. Their sliding window is ignored; `visible` must
            contain it.
        causal: whether each query attends to the keys up to its own position. `visible` must then
            be None.
    """
    if not settings.supported_by_sdpa:
        if causal:
            visible = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool, device=q.device).tril()
        return _eager_attention(q, k, v, visible, settings)
    batch, heads, queries, width = q.shape
    # On a CPU, heads that share keys are fastest as rows of one product. They also share the row of
    # the mask if there is only one.
    stack = q.device.type == "cpu" and queries == 1 and not causal
    mixed: Tensor = functional.scaled_dot_product_attention(
        q.reshape(batch, k.shape[1], -1, width) if stack else q,
        k,
        v,
        attn_mask=visible,
        is_causal=causal,
        scale=settings.scale,
        enable_gqa=not stack and heads != k.shape[1],
    )
    return mixed.reshape(batch, heads, queries, v.shape[-1])


def additive_mask(visible: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns the mask that torch adds to attention scores: 0 where `visible` is True, else -inf.

    torch makes it of a boolean mask in every call, so a mask that several layers use is converted
    beforehand.
    """
    mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
    return mask.masked_fill_(~visible, -torch.inf)


def flash_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: Tensor,
    key_starts: Tensor,
    max_queries: int,
    max_keys: int,
    settings: AttentionSettings,
    used: Tensor | None = None,
) -> Tensor:
    """Returns the attention output (N, H, E) of concatenated sequences, in half precision.

    The last query of a sequence attends to all its keys, the query before it to all but the last
    key, and so on.

    Args:
        q: the queries (N, H, E) of all sequences.
        k: the keys (M, K, E) of all sequences.
        v: the values (M, K, E) of all sequences.
        starts: where each sequence's queries begin in `q`, and at the end N.
        key_starts: where each sequence's keys begin in `k`, and at the end M.
        max_queries: the maximum number of queries per sequence.
        max_keys: the maximum number of keys per sequence.
        settings: the layer's attention settings, without softcap and sinks, which are not
            supported.
        used: the number of valid keys of each sequence, if some are padding.
    """
    extras: dict[str, Any] = {} if used is None else {"seqused_k": used}
    if settings.window is not None:
        extras |= {"window_size_left": settings.window - 1, "window_size_right": 0}
    mixed: Tensor = torch.ops.aten._flash_attention_forward(
        q,
        k,
        v,
        starts,
        key_starts,
        max_queries,
        max_keys,
        0.0,
        True,
        False,
        scale=settings.scale,
        **extras,
    )[0]
    return mixed


def _eager_attention(
    q: Tensor, k: Tensor, v: Tensor, visible: Tensor | None, settings: AttentionSettings
) -> Tensor:
    """Returns attention (B, H, N, E) with softcap and sinks, which torch has no fused function for.

    `visible` is a boolean mask, or None; the other parameters are those of `masked_attention`.
    """
    groups = q.shape[1] // k.shape[1]
    k, v = k.repeat_interleave(groups, dim=1), v.repeat_interleave(groups, dim=1)
    scores = q @ k.transpose(2, 3) * settings.scale_of(q)
    if settings.softcap is not None:
        scores = torch.tanh(scores / settings.softcap) * settings.softcap
    if visible is not None:
        scores = scores.masked_fill(~visible.to(torch.bool), torch.finfo(scores.dtype).min)
    if settings.sinks is not None:
        sinks = settings.sinks.to(scores.dtype)[None, :, None, None].expand(*scores.shape[:3], 1)
        scores = torch.cat([scores, sinks], dim=-1)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype)
    return weights[..., : k.shape[2]] @ v
