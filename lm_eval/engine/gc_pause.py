"""Pauses Python's cyclic garbage collection while large lists are built."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
