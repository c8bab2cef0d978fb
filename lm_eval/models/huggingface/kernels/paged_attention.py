"""Attention of one new token per row over keys and values in pages, in two Triton kernels.

The first kernel reads pages that several rows share once per tile of rows (cascade attention). The
second reads each row's other pages, stores the new token's keys and values, and combines both parts
by their log-sum-exps. All query heads that share a key head are computed together, so keys and
values are read once for them.

Shapes: B rows, H query heads, K key heads, E width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lm_eval.models.huggingface.attention import AttentionSettings
from lm_eval.models.huggingface.kernels.compiler import can_run_on, tl, triton
from lm_eval.models.huggingface.pages import PAGE, ROWS_PER_TILE, PagedRows

SHARED_KEYS = 128
"""Keys that the first kernel loads at once, if heads take at most `NARROW_HEAD` bytes."""
OWN_KEYS = 64
"""Keys that the second kernel loads at once, if heads take at most twice `NARROW_HEAD`."""
NARROW_HEAD = 128
"""Keys and values of wider heads are loaded in smaller portions, because a GPU's shared memory is
limited."""
SHARED_LAUNCH = {"num_warps": 4, "num_stages": 2}
"""Warps and pipeline stages of the first kernel."""
OWN_LAUNCH = {"num_warps": 2, "num_stages": 3}
"""Warps and pipeline stages of the second kernel."""
MANY_PROGRAMS = 2048
"""From this number on, programs of the second kernel are small, and more of them run at a time: a
program begins with a chain of short loads, during which others can read keys and values. The
start-up check tries both sizes (`decoding_check.TRIAL_PROGRAMS`)."""
MANY_QUERIES = 16
"""With more query heads per key head than this, or heads wider than `2 * NARROW_HEAD` bytes, a
small program would run out of registers."""
MANY_KEYS = 32
"""Keys that each of many programs loads at once."""
MANY_LAUNCH = {"num_warps": 1, "num_stages": 3}
"""Warps and pipeline stages of many programs."""
MAX_HEAD_WIDTH = 256
"""The kernels do not support wider heads."""
MAX_GROUP = 128
"""Maximum number of query heads that share a key head."""
MAX_TILE_QUERIES = 128
"""Maximum number of queries (rows times heads) that a program of the first kernel computes."""
PROGRAMS = 132
"""With fewer programs than this, the keys of a row or tile are split among several."""
MAX_SPLITS = 8
"""Maximum number of programs among which the keys of a row or tile are split."""
LOG2_E = 1.4426950408889634
"""Converts natural logarithms to base 2, for the hardware's exp2."""


def supports_pages(q: Tensor, k: Tensor, v: Tensor) -> bool:
    """Returns whether the kernels run where these heads (B, H or K, 1, E) are, and support them."""
    if not can_run_on(q.device) or q.dtype == torch.float64:
        return False
    fits: bool = q.shape[-1] == k.shape[-1] == v.shape[-1] <= MAX_HEAD_WIDTH
    return fits and q.shape[1] // k.shape[1] <= MAX_GROUP


def attend_pages(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    keys: Tensor,
    values: Tensor,
    rows: PagedRows,
    settings: AttentionSettings,
) -> Tensor:
    """Returns the attention output (B, H, E); stores the new keys and values in the pages.

    Args:
        q: the queries (B, H, E) of the new tokens.
        k: the keys (B, K, E) of the new tokens.
        v: the values (B, K, E) of the new tokens.
        keys: the pages of keys (pages, K, PAGE, E).
        values: the pages of values (pages, K, PAGE, E).
        rows: the pages of each row.
        settings: the layer's attention settings.
    """
    count, heads, width = q.shape
    key_heads = k.shape[1]
    group = heads // key_heads
    block = max(16, triton.next_power_of_2(width))
    scale, cap = settings.scale_of(q), settings.softcap
    scores = scale * LOG2_E if cap is None else scale / cap, (cap or 0.0) * LOG2_E
    window = settings.window or 0
    flags = {"has_window": settings.window is not None, "has_softcap": cap is not None}
    shape = {"width": width, "block": block, "page": PAGE}
    head_bytes = block * q.element_size()
    tiles = len(rows.tile_count)
    busy = max(1, -(-count // ROWS_PER_TILE) * key_heads)
    parts = min(MAX_SPLITS, max(1, PROGRAMS // busy)) if tiles else 0
    splits = min(MAX_SPLITS, max(1, PROGRAMS // (count * key_heads)))
    before = torch.empty((parts, count, heads, width), dtype=torch.float32, device=q.device)
    before_lse = torch.empty((parts, count, heads), dtype=torch.float32, device=q.device)
    out = torch.empty((count, heads, width), dtype=q.dtype, device=q.device)
    with torch.cuda.device_of(q):
        if parts:
            at_once = min(triton.next_power_of_2(group), MAX_TILE_QUERIES // ROWS_PER_TILE)
            portions = triton.cdiv(group, at_once)
            _attend_shared_pages[(tiles, key_heads * portions, parts)](
                q, keys, values, before, before_lse,
                rows.table, rows.position, rows.tile_rows, rows.tile_count, rows.tile_pages,
                *scores, window, count, heads, rows.table.stride(0), parts,
                q.stride(0), q.stride(1), *keys.stride()[:3], *values.stride()[:3],
                group=group, at_once=at_once, portions=portions, tile=ROWS_PER_TILE,
                keys_per_step=max(32, SHARED_KEYS * NARROW_HEAD // max(NARROW_HEAD, head_bytes)),
                **shape, **flags, **SHARED_LAUNCH,
            )  # fmt: skip
        partial, partial_lse = out, before_lse
        if splits > 1:
            partial = torch.empty(
                (splits, count, heads, width), dtype=torch.float32, device=q.device
            )
            partial_lse = torch.empty((splits, count, heads), dtype=torch.float32, device=q.device)
        is_small = group <= MANY_QUERIES and head_bytes <= 2 * NARROW_HEAD
        if count * key_heads >= MANY_PROGRAMS and is_small:
            keys_at_once, launch = MANY_KEYS, MANY_LAUNCH
        else:
            wide = max(2 * NARROW_HEAD, head_bytes)
            keys_at_once, launch = max(32, 2 * OWN_KEYS * NARROW_HEAD // wide), OWN_LAUNCH
        # The heads of a row follow each other: their keys and values are in the same pages.
        _attend_own_pages[(key_heads, count, splits)](
            q, k, v, keys, values, partial, partial_lse, before, before_lse,
            rows.order, rows.table, rows.position, rows.shared, settings.sinks,
            *scores, window, count, heads, rows.table.stride(0), parts, splits,
            q.stride(0), q.stride(1), k.stride(0), k.stride(1), v.stride(0), v.stride(1),
            *keys.stride()[:3], *values.stride()[:3],
            group=group, queries=max(16, triton.next_power_of_2(group)),
            keys_per_step=keys_at_once,
            **shape, **flags, has_sinks=settings.sinks is not None, is_final=splits == 1,
            log2_e=LOG2_E, **launch,
        )  # fmt: skip
        if splits > 1:
            _combine_splits[(count * heads,)](
                partial, partial_lse, out, count * heads, splits, width=width, block=block,
                most_splits=MAX_SPLITS, num_warps=1,
            )  # fmt: skip
    return out


if triton is not None:
    # Sizes that change from batch to batch must not cause the kernels to be compiled anew.
    _SIZES = ["window", "rows", "heads", "table_row", "parts", "splits"]

    @triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
    def _attend_shared_pages(  # type: ignore[no-untyped-def]
        q, k, v, out, lse, table, position, tile_rows, tile_count, tile_pages,
        scale, cap, window, rows, heads, table_row, parts,
        q_row, q_head, k_page, k_head, k_place, v_page, v_head, v_place,
        group: tl.constexpr, at_once: tl.constexpr, portions: tl.constexpr, tile: tl.constexpr,
        keys_per_step: tl.constexpr, width: tl.constexpr, block: tl.constexpr, page: tl.constexpr,
        has_window: tl.constexpr, has_softcap: tl.constexpr,
    ):  # fmt: skip
        """Computes the attention of the rows of a tile over the pages they share.

        A program handles one tile, up to `at_once` of the query heads that share a key head, and
        one part of the keys. It writes the output and its log-sum-exp (base 2) of that part.
        """
        which = tl.program_id(0)
        key_head = tl.program_id(1) // portions
        portion = tl.program_id(1) % portions
        part = tl.program_id(2)
        count = tl.load(tile_count + which)
        if count > 0:
            total_keys = tl.load(tile_pages + which) * page
            per_part = tl.cdiv(tl.cdiv(total_keys, keys_per_step), parts) * keys_per_step
            begin = part * per_part
            end = tl.minimum(begin + per_part, total_keys)
            query = tl.arange(0, tile * at_once)
            place_in_tile = query // at_once
            in_group = portion * at_once + query % at_once
            active = (place_in_tile < count) & (in_group < group)
            row = tl.load(tile_rows + which * tile + place_in_tile, mask=active, other=0)
            head = key_head * group + in_group
            column = tl.arange(0, block)
            inside = active[:, None] & (column < width)[None, :]
            queries = tl.load(
                q + (row.to(tl.int64) * q_row + head * q_head)[:, None] + column[None, :],
                mask=inside, other=0.0,
            )  # fmt: skip
            if has_window:
                earliest = tl.load(position + row, mask=active, other=0) + 1 - window
            pages = table + tl.load(tile_rows + which * tile).to(tl.int64) * table_row
            highest = tl.full((tile * at_once,), float("-inf"), tl.float32)
            total = tl.zeros((tile * at_once,), tl.float32)
            mixed = tl.zeros((tile * at_once, block), tl.float32)
            for at in range(begin, end, keys_per_step):
                place = at + tl.arange(0, keys_per_step)
                known = place < end
                number = tl.load(pages + place // page, mask=known, other=0).to(tl.int64)
                valid = known[:, None] & (column < width)[None, :]
                key_at = number * k_page + key_head * k_head + (place % page) * k_place
                key_block = tl.load(k + key_at[:, None] + column[None, :], mask=valid, other=0.0)
                scores = tl.dot(queries, tl.trans(key_block), input_precision="ieee") * scale
                if has_softcap:
                    scores = cap - 2.0 * cap / (1.0 + tl.exp(2.0 * scores))  # tanh
                visible = known[None, :] & active[:, None]
                if has_window:
                    visible = visible & (place[None, :] >= earliest[:, None])
                scores = tl.where(visible, scores, float("-inf"))
                new_highest = tl.maximum(highest, tl.max(scores, 1))
                base = tl.where(new_highest == float("-inf"), 0.0, new_highest)
                weights = tl.exp2(scores - base[:, None])
                correction = tl.exp2(highest - base)
                total = total * correction + tl.sum(weights, 1)
                value_at = number * v_page + key_head * v_head + (place % page) * v_place
                value_block = tl.load(
                    v + value_at[:, None] + column[None, :], mask=valid, other=0.0
                )
                mixed = tl.dot(
                    weights.to(value_block.dtype), value_block, mixed * correction[:, None],
                    input_precision="ieee",
                )  # fmt: skip
                highest = new_highest
            some = total > 0.0
            mixed = mixed / tl.where(some, total, 1.0)[:, None]
            target = (part * rows + row).to(tl.int64) * heads + head
            tl.store(out + target[:, None] * width + column[None, :], mixed, mask=inside)
            logs = tl.where(some, highest + tl.log2(tl.where(some, total, 1.0)), float("-inf"))
            tl.store(lse + target, logs, mask=active)

    @triton.jit(do_not_specialize=_SIZES)  # type: ignore[untyped-decorator]
    def _attend_own_pages(  # type: ignore[no-untyped-def]
        q, new_k, new_v, k, v, out, lse, before, before_lse,
        order, table, position, shared, sinks,
        scale, cap, window, rows, heads, table_row, parts, splits,
        q_row, q_head, new_k_row, new_k_head, new_v_row, new_v_head,
        k_page, k_head, k_place, v_page, v_head, v_place,
        group: tl.constexpr, queries: tl.constexpr, keys_per_step: tl.constexpr,
        width: tl.constexpr, block: tl.constexpr, page: tl.constexpr,
        has_window: tl.constexpr, has_softcap: tl.constexpr, has_sinks: tl.constexpr,
        is_final: tl.constexpr, log2_e: tl.constexpr,
    ):  # fmt: skip
        """Computes the attention of one row over its other pages, for one key head.

        The first of several splits starts with the new token, the sinks and the shared pages. A
        single split writes the output, several write theirs and its log-sum-exp (base 2).
        """
        key_head = tl.program_id(0)
        row = tl.load(order + tl.program_id(1))
        split = tl.program_id(2)
        here = tl.load(position + row)
        together = tl.load(shared + row)
        query = tl.arange(0, queries)
        active = query < group
        head = key_head * group + query
        column = tl.arange(0, block)
        in_width = column < width
        inside = active[:, None] & in_width[None, :]
        own = tl.load(
            q + row.to(tl.int64) * q_row + (head * q_head)[:, None] + column[None, :],
            mask=inside, other=0.0,
        )  # fmt: skip
        pages = table + row.to(tl.int64) * table_row
        highest = tl.full((queries,), float("-inf"), tl.float32)
        total = tl.zeros((queries,), tl.float32)
        mixed = tl.zeros((queries, block), tl.float32)
        if split == 0:
            fresh_k = tl.load(
                new_k + row.to(tl.int64) * new_k_row + key_head * new_k_head + column,
                mask=in_width, other=0.0,
            )  # fmt: skip
            fresh_v = tl.load(
                new_v + row.to(tl.int64) * new_v_row + key_head * new_v_head + column,
                mask=in_width, other=0.0,
            )  # fmt: skip
            number = tl.load(pages + here // page).to(tl.int64)
            tl.store(
                k + number * k_page + key_head * k_head + (here % page) * k_place + column,
                fresh_k, mask=in_width,
            )  # fmt: skip
            tl.store(
                v + number * v_page + key_head * v_head + (here % page) * v_place + column,
                fresh_v, mask=in_width,
            )  # fmt: skip
            score = tl.sum(own.to(tl.float32) * fresh_k.to(tl.float32)[None, :], 1) * scale
            if has_softcap:
                score = cap - 2.0 * cap / (1.0 + tl.exp(2.0 * score))
            highest = score
            if has_sinks:
                sink = tl.load(sinks + head, mask=active, other=0.0).to(tl.float32) * log2_e
                highest = tl.maximum(score, sink)
                total += tl.exp2(sink - highest)
            weight = tl.exp2(score - highest)
            total += weight
            mixed += weight[:, None] * fresh_v.to(tl.float32)[None, :]
            if together > 0:
                for part in range(0, parts):
                    source = (part * rows + row).to(tl.int64) * heads + head
                    logs = tl.load(before_lse + source, mask=active, other=float("-inf"))
                    found = tl.load(
                        before + source[:, None] * width + column[None, :], mask=inside, other=0.0
                    )
                    new_highest = tl.maximum(highest, logs)
                    correction = tl.exp2(highest - new_highest)
                    weight = tl.exp2(logs - new_highest)
                    total = total * correction + weight
                    mixed = mixed * correction[:, None] + found * weight[:, None]
                    highest = new_highest
        begin = together * page
        if has_window:
            begin = tl.maximum(begin, (here + 1 - window) // page * page)
        per_split = tl.cdiv(tl.cdiv(tl.maximum(here - begin, 0), keys_per_step), splits)
        begin += split * per_split * keys_per_step
        end = tl.minimum(begin + per_split * keys_per_step, here)
        for at in range(begin, end, keys_per_step):
            place = at + tl.arange(0, keys_per_step)
            known = place < end
            number = tl.load(pages + place // page, mask=known, other=0).to(tl.int64)
            valid = known[:, None] & in_width[None, :]
            key_at = number * k_page + key_head * k_head + (place % page) * k_place
            key_block = tl.load(k + key_at[:, None] + column[None, :], mask=valid, other=0.0)
            value_at = number * v_page + key_head * v_head + (place % page) * v_place
            value_block = tl.load(v + value_at[:, None] + column[None, :], mask=valid, other=0.0)
            scores = tl.dot(own, tl.trans(key_block), input_precision="ieee") * scale
            if has_softcap:
                scores = cap - 2.0 * cap / (1.0 + tl.exp(2.0 * scores))
            visible = known
            if has_window:
                visible = visible & (place >= here + 1 - window)
            scores = tl.where(visible[None, :], scores, float("-inf"))
            new_highest = tl.maximum(highest, tl.max(scores, 1))
            base = tl.where(new_highest == float("-inf"), 0.0, new_highest)
            weights = tl.exp2(scores - base[:, None])
            correction = tl.exp2(highest - base)
            total = total * correction + tl.sum(weights, 1)
            mixed = tl.dot(
                weights.to(value_block.dtype), value_block, mixed * correction[:, None],
                input_precision="ieee",
            )  # fmt: skip
            highest = new_highest
        if is_final:
            target = row.to(tl.int64) * heads + head
            tl.store(
                out + target[:, None] * width + column[None, :],
                (mixed / total[:, None]).to(own.dtype), mask=inside,
            )  # fmt: skip
        else:
            some = total > 0.0
            safe = tl.where(some, total, 1.0)
            target = (split * rows + row).to(tl.int64) * heads + head
            tl.store(
                out + target[:, None] * width + column[None, :], mixed / safe[:, None], mask=inside
            )
            logs = tl.where(some, highest + tl.log2(safe), float("-inf"))
            tl.store(lse + target, logs, mask=active)

    @triton.jit(do_not_specialize=["count", "splits"])  # type: ignore[untyped-decorator]
    def _combine_splits(  # type: ignore[no-untyped-def]
        partial, lse, out, count, splits,
        width: tl.constexpr, block: tl.constexpr, most_splits: tl.constexpr,
    ):  # fmt: skip
        """Combines the outputs of the splits of one row and head by their log-sum-exps."""
        which = tl.program_id(0).to(tl.int64)
        split = tl.arange(0, most_splits)
        column = tl.arange(0, block)
        used = split < splits
        logs = tl.load(lse + split * count + which, mask=used, other=float("-inf"))
        weight = tl.exp2(logs - tl.max(logs, 0))
        weight = weight / tl.sum(weight, 0)
        inside = used[:, None] & (column < width)[None, :]
        found = tl.load(
            partial + ((split * count + which) * width)[:, None] + column[None, :],
            mask=inside, other=0.0,
        )  # fmt: skip
        mixed = tl.sum(found * weight[:, None], 0)
        tl.store(out + which * width + column, mixed.to(out.dtype.element_ty), mask=column < width)
