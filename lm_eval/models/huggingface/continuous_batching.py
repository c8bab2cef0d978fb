"""Continuous batching: answers that end leave the batch, and waiting prompts take their places.

The host runs ahead of the device. It launches a few decoding steps (`decoding_step.py`), and while
the device runs them, it reads the tokens of the steps before, finds the answers that have ended and
launches the reading of the next prompts. An ended answer is therefore continued for a few steps;
these tokens are dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from lm_eval.api.usage import Usage
from lm_eval.engine.plan import concatenated_ranges, pad_batch
from lm_eval.models.conventions import Generation
from lm_eval.models.huggingface.admission import Admitted, Row, WaitingPrompts
from lm_eval.models.huggingface.attention import AttentionKernels, use_layout
from lm_eval.models.huggingface.decoding_step import (
    GRAPH_DEVICES,
    MIN_STEPS_TO_CAPTURE,
    NAN_TOKEN,
    DecodingStep,
    network_for_steps,
)
from lm_eval.models.huggingface.generation import Prompt, WrittenAnswer, random_draws
from lm_eval.models.huggingface.memory import cache_bytes_per_token, free_memory, layers_stored
from lm_eval.models.huggingface.network import Network
from lm_eval.models.huggingface.packing import copy_to_device
from lm_eval.models.huggingface.paged_cache import PagedCache, PromptPages
from lm_eval.models.huggingface.pages import (
    MIN_BYTES_SAVED,
    PAGE,
    OutOfPagesError,
    PagePool,
    find_groups,
)
from lm_eval.models.huggingface.request_errors import NaNScoresError
from lm_eval.models.huggingface.scoring import ROUNDED_SIZE_DEVICES, round_up
from lm_eval.models.huggingface.text_decoding import one_by_one
from lm_eval.models.huggingface.token_choice import choose_tokens
from lm_eval.models.partial_answers import (
    Decode,
    DecodeMany,
    GrowingAnswer,
    StopConditions,
)

STEPS_PER_READ = 8
"""Number of steps that are launched before tokens are read. While the host reads the tokens of
one portion of steps, the device runs the next."""
ADMISSION_SHARE = 16
"""Waiting prompts are read when one in so many rows is free, so that they share a forward pass."""
PROJECTED_ROWS = (32, 128)
"""On a GPU, the last states of prompts are projected to logits in one of these numbers, or as many
as there are rows: the matrix library takes up to 60 ms for every new number."""
MEMORY_SHARE = 0.7
"""The part of the free memory that the key-value cache may take on CUDA."""


class Decoding(NamedTuple):
    """Which parts of continuous batching are exact on a model."""

    cascade: bool = True
    """Rows with common pages read them together."""
    graphs: bool = True
    """Steps are captured as CUDA graphs."""


@dataclass(frozen=True)
class Launched:
    """Tokens that the device is computing, on their way to the host."""

    rows: list[Row]
    tokens: Tensor
    """(steps, rows)"""
    by_steps: bool
    """Whether they are chosen by decoding steps. Otherwise they are the first tokens of answers."""
    arrived: Any
    """The CUDA event after the copy; None if there is nothing to wait for."""

    @classmethod
    def of(cls, rows: list[Row], tokens: Tensor, *, by_steps: bool) -> Launched:
        """Starts to copy the tokens to the host, without waiting."""
        if tokens.device.type != "cuda":
            return cls(rows, tokens.clone(), by_steps, None)
        on_host = torch.empty(tokens.shape, dtype=tokens.dtype, pin_memory=True)
        on_host.copy_(tokens, non_blocking=True)
        arrived = torch.cuda.Event()
        arrived.record(torch.cuda.current_stream(tokens.device))
        return cls(rows, on_host, by_steps, arrived)

    def read(self) -> Any:
        """Waits for the tokens; returns them as an array (rows, steps)."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.tokens.numpy().T


class ContinuousBatch:
    """Generates the answers to many prompts, at most `max_rows` at a time."""

    def __init__(
        self,
        network: Network,
        decode: Decode,
        prompts: Sequence[Prompt],
        settings: Generation,
        stop_conditions: StopConditions,
        *,
        seed: int,
        device: torch.device,
        max_tokens: int,
        max_rows: int,
        attention_kernels: AttentionKernels,
        decoding: Decoding,
        usage: Usage,
        decode_many: DecodeMany | None = None,
        max_pages: int | None = None,
        min_pages_saved: int | None = None,
    ) -> None:
        """Plans the work and allocates the buffers.

        Args:
            network: the model.
            decode: returns the text of tokens.
            prompts: the prompts, each of which has at most `max_rows` answers.
            settings: the generation settings.
            stop_conditions: what ends an answer.
            seed: the seed for sampling.
            device: where the model runs.
            max_tokens: the maximum number of prompt tokens in one forward pass.
            max_rows: the maximum number of answers at a time.
            attention_kernels: the attention kernels that may be used for prompts.
            decoding: what is used of cascade attention and CUDA graphs.
            usage: counts the tokens.
            decode_many: returns the texts of several rows of tokens; None for `decode`, row by
                row.
            max_pages: the maximum number of pages of the key-value cache; None for what memory
                allows.
            min_pages_saved: rows read common pages together if it saves so many page reads; None
                if it saves more time than it takes.
        """
        self.network = network
        self.decode_many = decode_many or one_by_one(decode)
        self.settings = settings
        self.stop_conditions = stop_conditions
        self.seed = seed
        self.device = device
        self.max_tokens = max_tokens
        self.attention_kernels = attention_kernels
        self.decoding = decoding
        self.usage = usage
        self.min_pages_saved = (
            -(-MIN_BYTES_SAVED // self._page_bytes_per_layer)
            if min_pages_saved is None
            else min_pages_saved
        )
        self.max_rows = min(max_rows, sum(prompt.num_answers(settings) for prompt in prompts))
        self._waiting = WaitingPrompts(
            prompts,
            settings,
            partial(GrowingAnswer, decode, stop_conditions, settings.max_gen_toks),
            max_rows=self.max_rows,
            max_tokens=max_tokens,
        )
        self._last_read: PromptPages | None = None
        """The layout of the prompts read last, which keeps what the next ones share."""
        self._rows: list[Row] = []
        self._launched: deque[Launched] = deque()
        longest = max(len(prompt.tokens) for prompt in prompts) + settings.max_gen_toks
        # An ended answer is continued until its end is noticed.
        spare = 3 * STEPS_PER_READ
        per_row = -(-(longest + spare) // PAGE)
        wanted = self._waiting.pages_wanted(settings.max_gen_toks + spare)
        for_steps = network_for_steps(network, device)
        pages = min(wanted, self._affordable_pages() if max_pages is None else max_pages)
        if pages <= per_row:
            raise torch.OutOfMemoryError(
                f"out of memory: the key-value cache has room for {pages * PAGE} tokens"
            )
        self.pool = PagePool(pages)
        self.cache = PagedCache(pages)
        self.step = DecodingStep(
            for_steps,
            self.cache,
            settings,
            device,
            max_rows=self.max_rows,
            max_pages=per_row,
            max_position=longest - 1,
            steps=STEPS_PER_READ,
            graphs=decoding.graphs and device.type in GRAPH_DEVICES,
        )

    # As a decorator, it applies while this runs, not while the caller has an answer.
    @torch.inference_mode()  # type: ignore[untyped-decorator]
    def run(self) -> Iterator[tuple[int, WrittenAnswer]]:
        """Yields the request index and the answer to each request, as soon as it is finished.

        Raises `NaNScoresError` if logits are NaN, and what torch raises if memory runs out.
        """
        while True:
            self._drop_ended()
            # The device runs the steps while the host prepares the reading of prompts.
            if self._rows:
                self._launch_steps()
            self._admit()
            if not self._rows and not self._launched:
                return
            while self._launched and (not self._rows or self._portions_launched > 1):
                yield from self._read(self._launched.popleft())

    @property
    def _portions_launched(self) -> int:
        """The number of portions of steps whose tokens were not read yet."""
        return sum(launched.by_steps for launched in self._launched)

    def start(self) -> list[int]:
        """Reads as many prompts as fit, for a trial; returns the first request of each row."""
        self._admit()
        self._launched.clear()
        return [row.requests[0] for row in self._rows]

    def step_with(self, tokens: Tensor, *, captured: bool) -> Tensor:
        """Runs one step in which the rows read the given tokens; returns the logits (rows, V).

        This is for trials, after `start`. `captured` is whether the step may be captured.
        """
        self.step.token[: len(self._rows)] = tokens
        self._launch_steps(1, expected=MIN_STEPS_TO_CAPTURE if captured else 0)
        self._launched.clear()
        return self.step.logits[: len(self._rows)]

    # -- memory ------------------------------------------------------------------------------------

    def _affordable_pages(self) -> int:
        """Returns how many pages fit into a part of the free memory."""
        return int(MEMORY_SHARE * free_memory(self.device)) // self._page_bytes

    @property
    def _page_bytes(self) -> int:
        """The memory that a page takes in all layers."""
        weight = next(self.network.trunk.parameters())
        return PAGE * cache_bytes_per_token(self.network.config, weight.dtype)

    @property
    def _page_bytes_per_layer(self) -> int:
        """The memory that a page takes in one layer."""
        return max(1, self._page_bytes // layers_stored(self.network.config))

    # -- reading prompts ---------------------------------------------------------------------------

    def _admit(self) -> None:
        """Reads waiting prompts if enough rows are free, and adds their answers to the batch."""
        free = self.max_rows - len(self._rows)
        if not self._waiting or (self._rows and free < max(1, self.max_rows // ADMISSION_SHARE)):
            return
        # The pages of a batch are allocated while the device reads the batch before it.
        while admitted := self._waiting.admit(self.pool, len(self._rows)):
            self._prefill(admitted)
        if not self._rows and not self._launched:
            raise torch.OutOfMemoryError("out of memory: the key-value cache is too small")

    def _prefill(self, admitted: list[Admitted]) -> None:
        """Reads the next waiting prompts, which are those admitted, in one forward pass."""
        batch = self._waiting.take(len(admitted))
        writes = np.array(
            [write for prompt in admitted for write in prompt.writes], dtype=np.int64
        ).reshape(-1, 3)
        of_prompt = np.repeat(batch.scored, [len(prompt.writes) for prompt in admitted])
        position = concatenated_ranges(writes[:, 0], writes[:, 1])
        node = batch.nodes_on_paths(np.repeat(of_prompt, writes[:, 1]), position)
        places = np.stack([node, np.repeat(writes[:, 2], writes[:, 1]), position % PAGE])
        count = len(batch.tokens) - batch.num_cached
        if self.device.type in ROUNDED_SIZE_DEVICES:
            batch = pad_batch(batch, max(count, min(round_up(count), self.max_tokens)))
        tree = PromptPages(
            batch,
            self.cache,
            places,
            kernels=self.attention_kernels.tree,
            previous=self._last_read,
        )
        self._last_read = tree
        given = (
            copy_to_device(part, self.device).to(self.device)[None]
            for part in (tree.tokens, tree.position)
        )
        with use_layout(self.network.configs, tree):
            hidden = self.network.hidden(*given)[0]
        rows = [row for prompt in admitted for row in prompt.rows]
        counts = [len(prompt.rows) for prompt in admitted]
        where = np.repeat(batch.scored - batch.num_cached, counts)
        if self.device.type in ROUNDED_SIZE_DEVICES:
            most = next((n for n in PROJECTED_ROWS if len(rows) <= n), self.max_rows)
            where = np.append(where, np.repeat(where[:1], min(most, self.max_rows) - len(rows)))
        last_states = hidden.index_select(0, copy_to_device(where, self.device).to(hidden.device))
        logits = self.network.logits(last_states)[: len(rows)]
        draws = random_draws([(row.prompt, row.number) for row in rows], self.settings, self.seed)
        first = None if draws is None else copy_to_device(draws[:, 0].copy(), self.device)
        token, is_number = choose_tokens(logits, self.settings, first)
        self._add_rows(rows, token, draws)
        marked = torch.where(is_number, token, NAN_TOKEN)
        self._launched.append(Launched.of(rows, marked[None], by_steps=False))
        read = [given.prompt for given in admitted if not given.is_again]
        self.usage.count_prompt(sum(len(p.tokens) * len(p.requests) for p in read), count)

    # -- the batch ---------------------------------------------------------------------------------

    def _add_rows(self, rows: list[Row], tokens: Tensor, draws: Any) -> None:
        """Adds rows, whose first tokens were chosen, to the batch."""
        old = len(self._rows)
        source = np.concatenate([np.arange(old), self.max_rows + np.arange(len(rows))])
        self._rows += rows
        self.step.choose_rows(source, tokens.to(self.device), draws)

    def _drop_ended(self) -> None:
        """Removes answers that have ended, or have all their tokens, from the batch."""
        most = self.settings.max_gen_toks
        kept = [n for n, row in enumerate(self._rows) if not row.ended and row.chosen < most]
        if len(kept) == len(self._rows):
            return
        for row in set(self._rows).difference(self._rows[n] for n in kept):
            self.pool.release(row.give_pages())
        self._rows = [self._rows[n] for n in kept]
        if kept:
            none = torch.zeros(0, dtype=torch.int64, device=self.device)
            empty = np.zeros((0, most), dtype=np.float32)
            self.step.choose_rows(np.array(kept), none, empty)

    def _launch_steps(self, most: int = STEPS_PER_READ, expected: int | None = None) -> None:
        """Launches some steps of all rows, and the copy of their tokens to the host.

        There are at most `most` steps. `expected` is how many steps in all the rows are expected to
        need; None for as many as the longest answer may still have.
        """
        remaining = max(self.settings.max_gen_toks - row.chosen for row in self._rows)
        steps = min(most, remaining)
        if not steps:
            return
        self._grow(steps)
        table = [row.pages for row in self._rows]
        groups = []
        if self.decoding.cascade:
            full = np.array([row.full_pages for row in self._rows])
            deepest = int(full.max())
            prefixes = np.array(
                [row.pages[:deepest] + [-1] * (deepest - len(row.pages)) for row in self._rows]
            )
            tiles = self.step.tiles_for(len(self._rows))
            groups = find_groups(prefixes, full, tiles, self.min_pages_saved)
        self.step.place_rows(
            table, [row.position for row in self._rows], [row.chosen for row in self._rows], groups
        )
        needed = remaining if expected is None else expected
        tokens = self.step.run(len(self._rows), steps, needed)
        self._launched.append(Launched.of(list(self._rows), tokens, by_steps=True))
        for row in self._rows:
            row.advance(steps)

    def _grow(self, steps: int) -> None:
        """Gives all rows the pages for so many steps.

        If there are too few, the answers that were begun last leave the batch and are begun again
        later.
        """
        n = 0
        while n < len(self._rows):
            row = self._rows[n]
            try:
                while len(row.pages) * PAGE < row.position + steps:
                    row.pages.append(self.pool.take())
            except OutOfPagesError:
                self._evict()
                continue
            n += 1

    def _evict(self) -> None:
        """Removes the last answer from the batch; it waits until it is begun again."""
        row = self._rows.pop()
        if not self._rows:
            raise torch.OutOfMemoryError("out of memory: one answer fills the key-value cache")
        row.end()
        self.pool.release(row.give_pages())
        self._waiting.begin_again(row)

    def _read(self, launched: Launched) -> Iterator[tuple[int, WrittenAnswer]]:
        """Yields the answers that are ended by some launched tokens."""
        found = launched.read()
        if (found == NAN_TOKEN).any():
            for row, has_nan in zip(launched.rows, (found == NAN_TOKEN).any(axis=1), strict=True):
                if has_nan and not row.ended:
                    raise NaNScoresError(row.requests[0])
        new = found.shape[1]
        rows: list[Row] = []
        for row, tokens in zip(launched.rows, found.tolist(), strict=True):
            if not row.ended:
                rows.append(row)
                if row.answer.extend(tokens):
                    row.end()
        self.usage.count_generated(new * len(rows))
        if self.stop_conditions.stops:
            tails = self.decode_many([row.answer.tail(new) for row in rows])
            for row, tail in zip(rows, tails, strict=True):
                if self.stop_conditions.occurs_in(tail) and row.answer.end_at_stop(new):
                    row.end()
        ended = [row for row in rows if row.ended]
        written = [row.answer.tokens for row in ended]
        # At the end of a run, hundreds of answers end at once, and the device waits.
        texts = self.decode_many(written)
        for row, tokens, text in zip(ended, written, texts, strict=True):
            for request in row.requests:
                self.usage.count_answer(len(tokens))
                yield request, WrittenAnswer(tokens, text)
