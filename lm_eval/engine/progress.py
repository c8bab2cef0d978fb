"""Show rate and time left on a terminal; stay silent in a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol


class Progress(Protocol):
    """Something that can be told how much more is done."""

    def update(self, n: int = 1) -> object: ...


class _Silent:
    def update(self, n: int = 1) -> None:
        return


@contextmanager
def progress(
    total: int, desc: str, unit: str = "request", disable: bool = False
) -> Iterator[Progress]:
    """A progress bar over `total` units, drawn only where a person can see it."""
    if disable or total == 0 or not sys.stderr.isatty():
        yield _Silent()
        return
    from tqdm import tqdm

    with tqdm(total=total, desc=desc, unit=f" {unit}s", dynamic_ncols=True, mininterval=0.1) as bar:
        yield bar
