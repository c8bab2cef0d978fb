"""Pauses cyclic garbage collection, or its expensive part, while many objects are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: A full collection is due after this many collections of the middle generation.
_RARELY = 10_000


@contextmanager
def gc_paused() -> Iterator[None]:
    """Disables garbage collection inside the `with` block; restores its previous state afterwards.

    Allocating lists of a million small objects triggers the collector again and again. Each time it
    traverses all of them and frees nothing, while a device waits.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextmanager
def full_gc_postponed() -> Iterator[None]:
    """Postpones full garbage collections inside the `with` block; young objects are still freed.

    A full collection traverses every object of the process. While thousands of tasks or millions of
    requests are built, that happens again and again and frees nothing. Unlike `gc_paused`, this is
    for blocks that run code of tasks, which may leave garbage.
    """
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, max(old, _RARELY))
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)
