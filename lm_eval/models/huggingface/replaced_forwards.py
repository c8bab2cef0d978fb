"""Replaces the forward functions of some of a model's modules while the harness runs it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

Forward = Callable[..., Any]


class ReplacedForwards:
    """Replacements for the forward functions of some of a model's modules."""

    def __init__(self, forwards: Mapping[nn.Module, Forward] | None = None) -> None:
        self.forwards = dict(forwards or {})

    @contextmanager
    def active(self) -> Iterator[None]:
        """Replaces the forward functions inside the `with` block.

        A module whose `forward` attribute other code has set keeps that one. torch looks up
        `forward` on the module, so the replacements must be set there. They are removed at the end,
        which leaves the model unchanged for its owner.
        """
        free = {m: own for m, own in self.forwards.items() if "forward" not in m.__dict__}
        try:
            for module, forward in free.items():
                module.__dict__["forward"] = forward
            yield
        finally:
            for module in free:
                module.__dict__.pop("forward", None)
