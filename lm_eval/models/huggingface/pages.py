"""Pages of a key-value cache: which page holds which tokens of which answer.

A page stores the keys and values of `PAGE` consecutive positions. A full page of prompt tokens is
stored once for all answers whose prompts agree up to its end. The last, partly filled page of a
prompt, and the pages of the answer after it, belong to one answer.

This module keeps the books on the host. It needs no waiting for the device: the length of every
answer is known from the number of steps launched.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from torch import Tensor

from lm_eval.engine.plan import Ints

PAGE = 32
"""Number of positions of a page."""
SCRATCH_PAGE = 0
"""The page that unused rows of a batch write to. No answer owns it."""
ROWS_PER_TILE = 16
"""Maximum number of rows that attend to shared pages together."""
MIN_BYTES_SAVED = 16 << 20
"""Rows attend to shared pages together only if so many bytes less are read per layer. A GPU reads
40 MB in the time that the kernel for shared pages takes at least; but few rows leave most of the
GPU idle, so that this kernel pays earlier."""


class PagedRows(NamedTuple):
    """Where the rows of one decoding step find their keys and values; int32 tensors on the device.

    The keys of row `r` are in the pages `table[r]`, in order. Its new token is at `position[r]`.
    The first `shared[r]` pages are those that the rows of one tile have in common.
    """

    table: Tensor
    """The pages of each row (rows, pages per row)."""
    position: Tensor
    """The position of each row's new token."""
    shared: Tensor
    """How many leading pages of a row its tile reads; 0 for a row without a tile."""
    tile_rows: Tensor
    """The rows of each tile (tiles, `ROWS_PER_TILE`)."""
    tile_count: Tensor
    """The number of rows of each tile; 0 for an unused tile."""
    tile_pages: Tensor
    """The number of leading pages that the rows of each tile share."""
    order: Tensor
    """The rows in the order in which a GPU begins them (`longest_first`)."""


def max_tiles(rows: int) -> int:
    """Returns the number of tiles for which a batch of `rows` rows has room."""
    return -(-rows // ROWS_PER_TILE) + ROWS_PER_TILE


def longest_first(position: Ints, shared: Ints) -> Ints:
    """Returns the rows in the order of the keys that they read alone, the most first.

    A GPU begins a row when another one ends. If long rows came last, most of it would wait.

    Args:
        position: the position of each row's new token.
        shared: how many leading pages each row reads together with others.
    """
    return np.argsort(shared * PAGE - position, kind="stable")


class OutOfPagesError(RuntimeError):
    """There are too few free pages."""


class PagePool:
    """Allocates the pages of one cache, and finds the pages that prompts have in common."""

    def __init__(self, count: int) -> None:
        """`count` is the number of pages, including the scratch page."""
        self._free = list(range(count - 1, SCRATCH_PAGE, -1))
        self._users: dict[int, int] = {}
        self._page_of: dict[tuple[int, bytes], int] = {}
        self._key_of: dict[int, tuple[int, bytes]] = {}

    @property
    def free(self) -> int:
        """The number of free pages."""
        return len(self._free)

    def take(self) -> int:
        """Returns a page for one answer. Raises `OutOfPagesError` if none is free."""
        if not self._free:
            raise OutOfPagesError("all pages of the key-value cache are in use")
        page = self._free.pop()
        self._users[page] = 1
        return page

    def share(self, tokens: Ints) -> tuple[list[int], list[int]]:
        """Returns the full pages of a prompt, and the indices of those that are not yet written.

        Each of the pages gets one user more. Raises `OutOfPagesError` if there are too few free
        pages; then nothing has changed.
        """
        raw = np.ascontiguousarray(tokens, dtype=np.int64).tobytes()
        size = PAGE * 8
        pages: list[int] = []
        unwritten: list[int] = []
        before = SCRATCH_PAGE
        for n in range(len(tokens) // PAGE):
            key = before, raw[n * size : (n + 1) * size]
            page = self._page_of.get(key)
            if page is None:
                try:
                    page = self.take()
                except OutOfPagesError:
                    self.release(pages)
                    raise
                self._page_of[key], self._key_of[page] = page, key
                unwritten.append(n)
            else:
                self._users[page] += 1
            pages.append(page)
            before = page
        return pages, unwritten

    def add_users(self, pages: Sequence[int], count: int) -> None:
        """Counts `count` more users of each page."""
        for page in pages:
            self._users[page] += count

    def release(self, pages: Sequence[int]) -> None:
        """Counts one user less of each page, and frees those that nobody uses."""
        for page in pages:
            self._users[page] -= 1
            if not self._users[page]:
                del self._users[page]
                key = self._key_of.pop(page, None)
                if key is not None:
                    del self._page_of[key]
                self._free.append(page)


class Group(NamedTuple):
    """Rows that have their first pages in common."""

    rows: Ints
    pages: int

    @property
    def saved(self) -> int:
        """How many page reads are saved if the rows read these pages together."""
        return (len(self.rows) - 1) * self.pages

    @property
    def tiles(self) -> int:
        """The number of tiles that the rows fill."""
        return -(-len(self.rows) // ROWS_PER_TILE)


def find_groups(table: Ints, full: Ints, tiles: int, min_saved: int) -> list[Group]:
    """Returns groups of rows that should read their common pages together, for `make_tiles`.

    A row is in at most one group. The groups are chosen such that most page reads are saved: a
    large group with few common pages, or smaller ones with more. Those that save most come first.

    Args:
        table: the pages of each row (rows, pages per row).
        full: the number of leading pages of each row that may be shared.
        tiles: the maximum number of tiles. Groups for which none is left are dropped.
        min_saved: there are no groups unless they save so many page reads together.
    """

    def best(rows: Ints, depth: int) -> list[Group]:
        """Returns the best groups among rows that have `depth` pages in common."""
        deepest = int(full[rows].max())
        own = np.where(
            np.arange(depth, deepest) < full[rows][:, None], table[rows, depth:deepest], -1
        )
        same = (own == own[0]).all(axis=0) & (own[0] >= 0)
        pages = depth + (len(same) if same.all() else int(same.argmin()))
        whole = Group(rows, pages)
        if pages == deepest:
            return [whole]
        following = own[:, pages - depth]
        order = np.argsort(following, kind="stable")
        cuts = np.flatnonzero(np.diff(following[order])) + 1
        parts = [part for part in np.split(rows[order], cuts) if len(part) > 1]
        split = [
            group for part in parts if full[part].min() > pages for group in best(part, pages + 1)
        ]
        return split if sum(group.saved for group in split) > whole.saved else [whole]

    if len(table) < 2 or not full.any():
        return []
    found: list[Group] = []
    for group in sorted(best(np.arange(len(table)), 0), key=lambda group: -group.saved):
        if group.saved and group.tiles <= tiles:
            found.append(group)
            tiles -= group.tiles
    return found if sum(group.saved for group in found) >= min_saved else []


def make_tiles(groups: Sequence[Group], tiles: int) -> tuple[Ints, Ints, Ints]:
    """Returns the rows, row counts and page counts of `tiles` tiles, in which all groups fit."""
    rows = np.zeros((tiles, ROWS_PER_TILE), dtype=np.int64)
    count = np.zeros(tiles, dtype=np.int64)
    pages = np.zeros(tiles, dtype=np.int64)
    at = 0
    for group in groups:
        for part in np.split(group.rows, range(ROWS_PER_TILE, len(group.rows), ROWS_PER_TILE)):
            rows[at, : len(part)], count[at], pages[at] = part, len(part), group.pages
            at += 1
    return rows, count, pages
