"""The context object that an evaluation shares with its model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.usage import Usage


@dataclass
class RunContext:
    """Settings that an evaluation passes to its model, and usage counts that the model fills in.

    The evaluation creates one and passes it to `LM.set_run_context` before the first request. The
    model reads it as `self.run_context`. A model that is called outside an evaluation has a
    context with the defaults below. Model classes may ignore it.
    """

    seed: int | None = None
    """Seed for sampled answers, used by models that were created without a `seed` argument."""
    chat_template: str | None = None
    """Text of the chat template that the run chose by name; None means the model's default."""
    think_end_token: str | int | None = None
    """Token after which the model's final answer begins; scoring cuts everything before it."""
    usage: Usage = field(default_factory=Usage)
    """Token and request counts, which the model updates while it answers."""


@contextmanager
def in_context(lm: Any, context: RunContext) -> Iterator[None]:
    """Sets `context` on the model inside the `with` block, and None after it.

    A model without the method `set_run_context` is left as it is.
    """
    set_context = getattr(lm, "set_run_context", lambda context: None)
    set_context(context)
    try:
        yield
    finally:
        set_context(None)
