"""Replaces the forward functions of some modules while we run a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import nn

Forward = Callable[..., Any]


class ReplacedForwards:
    """The forward functions that stand in for those of some of a model's modules."""

    def __init__(self, forwards: Mapping[nn.Module, Forward] | None = None) -> None:
        self.forwards = dict(forwards or {})

    @contextmanager
    def switched_on(self) -> Iterator[None]:
        """Uses them inside the `with` block, except where a module has got another forward since.

        torch looks `forward` up on the module, so there is no other place to put them; they are
        removed again at the end, and the model's owner finds it unchanged.
        """
        free = {m: own for m, own in self.forwards.items() if "forward" not in m.__dict__}
        try:
            for module, forward in free.items():
                module.__dict__["forward"] = forward
            yield
        finally:
            for module in free:
                module.__dict__.pop("forward", None)
