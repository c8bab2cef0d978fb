"""Compares the kernels with torch, on a GPU or, without one, in Triton's interpreter.

usage: python -m tests.huggingface.kernel_trials, with TRITON_INTERPRET=1 where there is no GPU
"""

from __future__ import annotations

from unittest import mock

import numpy as np
import torch

from lm_eval.models.huggingface import pages
from lm_eval.models.huggingface.attention import AttentionSettings
from lm_eval.models.huggingface.kernels import (
    attention,
    layers,
    page_writing,
    paged_attention,
    reduction,
)
from lm_eval.models.huggingface.paged_cache import attend_pages_by_torch
from lm_eval.models.huggingface.torch_reduction import reduce_by_torch
from tests.huggingface.slow_kernels import apply_rotary, attend, gated_activation, rms_norm

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
HALVES = [torch.bfloat16, torch.float16] if DEVICE == "cuda" else []
KINDS = [torch.float32, *HALVES]


def draw(*shape: int, kind: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device=DEVICE).to(kind)


def check(found: torch.Tensor, expected: torch.Tensor, what: str, digits: int = 4) -> None:
    """Asserts that `found` equals `expected` up to `digits` units in the last place of its type."""
    most = digits * torch.finfo(expected.dtype).eps
    assert found.shape == expected.shape, what
    torch.testing.assert_close(found, expected, rtol=most, atol=most, msg=lambda m: f"{what}: {m}")


def try_layers(kind: torch.dtype) -> None:
    for width in (8, 96, 192, 2048):
        x, weight = 3 * draw(2, 5, width, kind=kind), draw(width, kind=kind)
        for weight_plus_one in (False, True):
            expected = rms_norm(x, weight, 1e-6, weight_plus_one=weight_plus_one)
            found = layers.rms_norm(x, weight, 1e-6, weight_plus_one=weight_plus_one)
            check(found, expected, f"norm {kind} {width} {weight_plus_one}")
    for width in (5, 1700, 4096):
        both = draw(3, 2, 2 * width, kind=kind)
        apart = both[..., :width].contiguous(), draw(3, 2, width, kind=kind)
        for x, other in (apart, both.split([width, width], dim=-1), both.mT[:, :2].chunk(2, dim=1)):
            for activation in ("silu", "gelu_tanh"):
                check(
                    layers.gated_activation(x, other, activation),
                    gated_activation(x, other, activation),
                    f"{activation} {kind} {width} {x.stride()}",
                )
    for batch, heads, others, width in ((1, 4, 2, 64), (2, 3, 3, 20), (2, 1, 5, 128)):
        q = draw(batch, 7, heads, width, kind=kind).transpose(1, 2)
        k = draw(batch, 7, others, 2 * width, kind=kind)[..., :width].transpose(1, 2)
        cosine, sine = draw(2, batch, 7, width, kind=kind)
        expected = apply_rotary(q, k, cosine, sine)
        found = layers.apply_rotary(q, k, cosine, sine)
        for x, one, other in zip((q, k), found, expected, strict=True):
            check(one, other, f"rotation {kind} {x.shape[1]} {width}")
        assert found[0].stride() == q.stride()


def try_attention(kind: torch.dtype) -> None:
    """Compares tree attention with torch, on chains longer and shorter than a tile."""
    rng = np.random.default_rng(0)
    length, above = np.array([50, 1, 30, 9]), np.array([10, 70, 0, 100])
    own = 100 + np.cumsum(length) - length
    chains = attention.Chains(
        first=own - 100, length=length, own=own, above=above,
        stem=np.array([10, 30, 0, 0]), root=np.array([7, 50, 0, 0]),
        listed=np.array([0, 10, 0, 60]), keys=rng.integers(0, 100, 180).astype(np.int32),
    )  # fmt: skip
    for heads, key_heads, width in ((4, 1, 16), (4, 2, 24), (3, 3, 64), (2, 1, 256)):
        q = draw(90, heads, width, kind=kind)
        k, v = draw(2, 190, key_heads, width, kind=kind)
        tiles = attention.make_tiles(chains, attention.queries_per_tile(heads, key_heads, width))
        sent = [torch.from_numpy(part).to(DEVICE) for part in (tiles, chains.keys)]
        for settings in (
            AttentionSettings(0.3), AttentionSettings(0.3, window=7),
            AttentionSettings(softcap=0.5), AttentionSettings(sinks=draw(heads, kind=kind)),
            AttentionSettings(0.3, window=5, softcap=3.0, sinks=3 * draw(heads)),
        ):  # fmt: skip
            found = attention.attend(q, k, v, *sent, settings)
            given = [x.cpu().double() for x in (q, k, v)]
            expected = attend(*given, *(x.cpu() for x in sent), settings)
            digits = 128 if kind == torch.float32 else 4  # sums of hundreds of products
            what = f"attention {kind} {heads} {width} {settings}"
            check(found.cpu(), expected.to(kind), what, digits)


def try_reduction(kind: torch.dtype) -> None:
    scores = draw(5, reduction.BLOCK + 77, kind=kind)
    total, best = reduction.reduce_by_triton(scores)
    expected_total, expected_best = reduce_by_torch(scores)
    torch.testing.assert_close(total, expected_total, rtol=1e-5, atol=1e-4)
    assert torch.equal(best, expected_best)


def try_pages(kind: torch.dtype) -> None:
    """Compares attention over pages with torch, for rows that share pages and rows that do not."""
    rng = np.random.default_rng(0)
    for rows, heads, key_heads, width, window, grouped, many in (
        (20, 4, 2, 16, None, True, 999), (5, 3, 1, 24, 70, True, 999),
        (70, 4, 2, 16, None, True, 999), (20, 4, 2, 16, None, True, 40),
        (5, 4, 2, 16, None, False, 999), (70, 4, 2, 16, 70, False, 140),
    ):  # fmt: skip
        free = iter(range(1, 4 * rows + 8))
        common = [next(free) for _ in range(2)]
        table = np.array(
            [(common if n % 3 else []) + [next(free) for _ in range(2 if n % 3 else 4)]
             for n in range(rows)]
        )  # fmt: skip
        full = np.array([2 if n % 3 else 0 for n in range(rows)])
        position = rng.integers(2 * pages.PAGE, 4 * pages.PAGE, rows)
        room = pages.max_tiles(rows) if grouped else 0
        groups = pages.find_groups(table, full, room, 1)
        assert [group.pages for group in groups] == [2] * grouped
        shared = full if grouped else np.zeros_like(full)
        tiles = pages.make_tiles(groups, room)
        arrays = [table, position, shared, *tiles, pages.longest_first(position, shared)]
        sent = pages.PagedRows(*(torch.from_numpy(x.astype(np.int32)).to(DEVICE) for x in arrays))
        q, k, v = (draw(rows, n, width, kind=kind) for n in (heads, key_heads, key_heads))
        stored = draw(2, 4 * rows + 8, key_heads, pages.PAGE, width, kind=kind)
        for settings in (
            AttentionSettings(0.3, window),
            AttentionSettings(None, window, softcap=3.0, sinks=draw(heads)),
        ):
            by_kernel, by_torch = stored.clone(), stored.double()
            with mock.patch.object(paged_attention, "MANY_PROGRAMS", many):
                found = paged_attention.attend_pages(q, k, v, *by_kernel, sent, settings)
            exact = [x.double() for x in (q, k, v)]
            sinks = None if settings.sinks is None else settings.sinks.double()
            expected = attend_pages_by_torch(
                *exact, *by_torch, sent, settings._replace(sinks=sinks)
            )
            check(found, expected.to(kind), f"pages {kind} {rows} {settings}", 64)
            assert torch.equal(by_kernel.double(), by_torch)


def try_writing(kind: torch.dtype) -> None:
    k, v = (draw(1, 9, 3, 20, kind=kind).transpose(1, 2) for _ in range(2))
    node, page, offset = (
        torch.tensor(x, device=DEVICE) for x in ([8, 0, 3], [2, 1, 1], [5, 0, 31])
    )
    found, expected = torch.zeros(2, 2, 4, 3, pages.PAGE, 20, device=DEVICE, dtype=kind)
    page_writing.write_pages(k, v, *found, node, page, offset)
    for new, stored in zip((k, v), expected, strict=True):
        stored[page, :, offset] = new[0].transpose(0, 1)[node]
    assert torch.equal(found, expected)


TRIALS = (try_layers, try_attention, try_reduction, try_pages, try_writing)


def main() -> None:
    torch.manual_seed(0)
    for kind in KINDS:
        for trial in TRIALS:
            trial(kind)
    print("all kernels agree with torch on", DEVICE)


if __name__ == "__main__":
    main()
