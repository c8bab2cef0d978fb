"""Computes what is needed next in a thread, while what is there is used."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def computed_ahead(compute: Callable[[T], R], items: Iterable[T]) -> Iterator[tuple[T, R]]:
    """Yields each item with what `compute` returns for it.

    `compute` runs in a thread, for the next item while the caller uses the one before. What it
    raises is raised when its item is asked for.
    """
    current: tuple[T, Future[R]] | None = None
    with ThreadPoolExecutor(1, thread_name_prefix="lm_eval-ahead") as thread:
        for item in items:
            following = item, thread.submit(compute, item)
            if current is not None:
                yield current[0], current[1].result()
            current = following
        if current is not None:
            yield current[0], current[1].result()
