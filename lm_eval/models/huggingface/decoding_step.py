"""One decoding step of all rows, as a CUDA graph over buffers that stay where they are.

A step reads each row's last token and chooses the next one. A model of sixteen layers launches more
than a thousand kernels for it, which takes the host much longer than the device needs to run them.
So a step is captured once for a few batch sizes and then replayed. It is captured while the device
still reads prompts. Code that prepares something when it runs for the first time would be captured,
but not run. So one step of a model must have been launched as usual before, in the same process;
the start-up check does that (`decoding_check.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm_eval.engine.plan import Ints
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.accelerated import merged_projections
from lm_eval.models.huggingface.attention import use_layout
from lm_eval.models.huggingface.memory import free_memory, is_out_of_memory
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.packing import copy_to_device
from lm_eval.models.huggingface.paged_cache import PagedCache, PagedStep
from lm_eval.models.huggingface.pages import (
    ROWS_PER_TILE,
    Group,
    PagedRows,
    longest_first,
    make_tiles,
    max_tiles,
)
from lm_eval.models.huggingface.token_choice import choose_tokens

logger = logging.getLogger(__name__)

GRAPH_DEVICES = ("cuda",)
"""The device types on which a step can be captured as a graph."""
NAN_TOKEN = -1
"""Placeholder for a token whose logits were NaN."""
MIN_BATCH_SIZE = 32
"""When answers end, the batch size is not reduced below this."""
MERGED_MEMORY_SHARE = 0.1
"""Copies of weights, for merged projections, take at most this part of the free memory."""
MIN_STEPS_TO_CAPTURE = 12
"""A step is captured only if it is repeated so often; capturing takes as long as a few steps."""


def batch_sizes(most: int) -> list[int]:
    """Returns the batch sizes for which steps are captured, in ascending order, up to `most`.

    A step of fewer than `MIN_BATCH_SIZE` rows takes about as long as one of that many.
    """
    sizes = {most, *(MIN_BATCH_SIZE << n for n in range(16)), *(3 << n for n in range(5, 16))}
    return sorted(size for size in sizes if size <= most)


def network_for_steps(network: Network, device: torch.device) -> Network:
    """Returns a network with which steps are faster; it holds copies of some weights."""
    most_bytes = int(MERGED_MEMORY_SHARE * free_memory(device))
    return network.with_more_forwards(merged_projections(network.trunk, most_bytes))


def stop_allocating(device: torch.device, pool: Any) -> None:
    """Lets torch no longer allocate memory for a capture that has failed.

    Some versions of torch go on if the failed capture cannot be ended, and `empty_cache` then
    raises an error for the rest of the process.
    """
    end = getattr(torch._C, "_cuda_endAllocateToPool", None)
    if end is None:
        return
    try:
        end(torch.cuda.current_device() if device.index is None else device.index, pool)
    except RuntimeError as error:
        logger.debug("The failed capture no longer allocates memory: %s", error)


def _aligned(count: int) -> int:
    """Returns how many integers a buffer takes up, so that the next one begins at 16 bytes.

    Kernels are compiled anew for pointers that are aligned differently.
    """
    return -(-count // 4) * 4


class DecodingStep:
    """Runs decoding steps of up to `max_rows` rows; each row's state is in buffers on the device.

    The buffers have one entry per row: its last token, the position of that token, the number of
    tokens chosen so far, its pages and, for sampling, its random numbers.
    """

    def __init__(
        self,
        network: Network,
        cache: PagedCache,
        settings: Generation,
        device: torch.device,
        *,
        max_rows: int,
        max_pages: int,
        max_position: int,
        steps: int,
        graphs: bool,
    ) -> None:
        """Allocates the buffers.

        Args:
            network: the model, as `network_for_steps` returns it.
            cache: the key-value cache.
            settings: the generation settings.
            device: where the model runs.
            max_rows: the maximum number of rows.
            max_pages: the maximum number of pages per row.
            max_position: the last position that an answer can have. Steps after the end of an
                answer, whose tokens are dropped, read theirs at this position too: the model may
                have no embedding for a later one.
            steps: the maximum number of steps between two reads of the tokens.
            graphs: whether steps are captured as CUDA graphs and replayed.
        """
        self.network = network
        self.cache = cache
        self.settings = settings
        self.device = device
        self.max_position = max_position
        self.graphs = graphs
        self.sizes = batch_sizes(max_rows)
        tiles = max_tiles(max_rows)
        self._shapes = {
            "table": (max_rows, max_pages),
            "position": (max_rows,),
            "chosen": (max_rows,),
            "shared": (max_rows,),
            "tile_rows": (tiles, ROWS_PER_TILE),
            "tile_count": (tiles,),
            "tile_pages": (tiles,),
            "order": (max_rows,),
        }
        total = sum(_aligned(int(np.prod(shape))) for shape in self._shapes.values())
        self._state = torch.zeros(total, dtype=torch.int32, device=device)
        self._buffers = self._split(self._state)
        self.token = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self.draws = (
            torch.zeros((max_rows, settings.max_gen_toks), device=device)
            if settings.sampled
            else None
        )
        self.logits = torch.zeros(0, device=device)
        """The logits (rows, V) of the last step."""
        self._marked = torch.zeros(max_rows, dtype=torch.int64, device=device)
        self._history = torch.zeros((steps, max_rows), dtype=torch.int64, device=device)
        self._has_groups = False
        """Whether rows read their first pages together. If not, steps launch no kernel for that."""
        self._captured: dict[tuple[int, bool], tuple[Any, Tensor]] = {}
        """Captured steps with their logits, by batch size and `_has_groups`."""
        self._memory_pool: Any = None

    def _split(self, flat: Any) -> dict[str, Any]:
        """Returns views of an array or tensor that holds all integer buffers one after another."""
        views, at = {}, 0
        for name, shape in self._shapes.items():
            count = int(np.prod(shape))
            views[name] = flat[at : at + count].reshape(shape)
            at += _aligned(count)
        return views

    def place_rows(
        self,
        table: Sequence[Sequence[int]],
        position: Sequence[int],
        chosen: Sequence[int],
        groups: Sequence[Group],
    ) -> None:
        """Sends the state of all rows to the device, in one transfer that is not waited for.

        Args:
            table: the pages of each row.
            position: the position of each row's last token.
            chosen: the number of tokens chosen so far in each row.
            groups: the rows that read their first pages together; they fill at most
                `tiles_for(len(table))` tiles.
        """
        flat = np.zeros(len(self._state), dtype=np.int32)
        views = self._split(flat)
        for row, pages in enumerate(table):
            views["table"][row, : len(pages)] = pages
        views["position"][: len(position)] = position
        views["chosen"][: len(chosen)] = chosen
        size, tiles = self.size_for(len(table)), self.tiles_for(len(table))
        parts = make_tiles(groups, tiles)
        for name, part in zip(("tile_rows", "tile_count", "tile_pages"), parts, strict=True):
            views[name][:tiles] = part
        for group in groups:
            views["shared"][group.rows] = group.pages
        views["order"][:size] = longest_first(views["position"][:size], views["shared"][:size])
        self._has_groups = bool(groups)
        self._state.copy_(copy_to_device(flat, self.device), non_blocking=True)

    def choose_rows(self, source: Ints, tokens: Tensor, draws: Any) -> None:
        """Rearranges the rows: row `i` continues what was row `source[i]`.

        Rows from `len(source of old rows)` on are new: `source` counts them after the `max_rows`
        old ones. Their first tokens are `tokens`, and their random numbers `draws`.
        """
        index = copy_to_device(source, self.device)
        self.token[: len(source)] = torch.cat([self.token, tokens]).index_select(0, index)
        if self.draws is not None and draws is not None:
            fresh = copy_to_device(draws, self.device)
            self.draws[: len(source)] = torch.cat([self.draws, fresh]).index_select(0, index)

    def size_for(self, rows: int) -> int:
        """Returns the batch size that is used for so many rows."""
        return next(size for size in self.sizes if size >= rows)

    def tiles_for(self, rows: int) -> int:
        """Returns the number of tiles for which a step of so many rows has room."""
        return max_tiles(self.size_for(rows))

    def run(self, rows: int, steps: int, remaining: int) -> Tensor:
        """Runs some steps of the first `rows` rows; returns the tokens (steps, rows).

        They are on the device; `NAN_TOKEN` stands for a token whose logits were NaN. `remaining` is
        how many steps these rows are expected to need.
        """
        size = self.size_for(rows)
        kind = size, self._has_groups
        for step in range(steps):
            enough = remaining - step >= MIN_STEPS_TO_CAPTURE
            if self.graphs and enough and kind not in self._captured:
                self._capture(size)
            captured = self._captured.get(kind)
            if captured is None:
                self._step(size)
            else:
                graph, self.logits = captured
                graph.replay()
            self._history[step, :rows] = self._marked[:rows]
        return self._history[:steps, :rows]

    def _step(self, size: int) -> None:
        """Runs one step of `size` rows. Reads and writes the buffers only."""
        own = {name: self._buffers[name] for name in self._shapes}
        tiles = max_tiles(size) if self._has_groups else 0
        position, chosen = own["position"][:size], own["chosen"][:size]
        rows = PagedRows(
            own["table"][:size],
            position,
            own["shared"][:size],
            own["tile_rows"][:tiles],
            own["tile_count"][:tiles],
            own["tile_pages"][:tiles],
            own["order"][:size],
        )
        with use_layout(self.network.configs, PagedStep(self.cache, rows)):
            hidden = self.network.hidden(self.token[:size, None], position[:, None].long())
        logits = self.logits = self.network.logits(hidden[:, -1])
        draws = None
        if self.draws is not None:
            draws = self.draws[:size].gather(1, chosen[:, None].long())[:, 0]
        token, is_number = choose_tokens(logits, self.settings, draws)
        self.token[:size] = token
        self._marked[:size] = torch.where(is_number, token, NAN_TOKEN)
        position += 1
        position.clamp_(max=self.max_position)
        chosen += 1
        chosen.clamp_(max=self.settings.max_gen_toks - 1)

    def _capture(self, size: int) -> None:
        """Captures a step of `size` rows. If that fails, steps are launched as usual."""
        kind = size, self._has_groups
        of_last_step = self.logits
        try:
            self._captured[kind] = self._captured_step(size), self.logits
        except Exception as error:  # model code may do things that cannot be captured
            if is_out_of_memory(error):
                raise
            self.graphs = False
            first = next(iter(str(error).splitlines()), "")
            logger.warning(
                "Decoding steps are not captured as CUDA graphs: %s: %s",
                type(error).__name__,
                first,
            )
        self.logits = of_last_step

    def _captured_step(self, size: int) -> Any:
        """Returns the CUDA graph of a step of `size` rows, which does not run here."""
        if self._memory_pool is None:
            self._memory_pool = torch.cuda.graph_pool_handle()
        graph = torch.cuda.CUDAGraph()
        stream, current = torch.cuda.Stream(self.device), torch.cuda.current_stream(self.device)
        stream.wait_stream(current)
        with torch.cuda.stream(stream):
            graph.capture_begin(pool=self._memory_pool, capture_error_mode="thread_local")
            try:
                self._step(size)
            except BaseException:
                try:
                    self._end_capture(graph)
                except RuntimeError as error:
                    logger.debug("The failed capture could not be ended: %s", error)
                raise
            self._end_capture(graph)
        current.wait_stream(stream)
        return graph

    def _end_capture(self, graph: Any) -> None:
        """Ends a capture; raises what torch raises if it has failed."""
        try:
            graph.capture_end()
        except RuntimeError:
            stop_allocating(self.device, self._memory_pool)
            raise
