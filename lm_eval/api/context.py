"""What one evaluation and its model tell each other."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from lm_eval.api.usage import Usage


@dataclass
class RunContext:
    """Settings that an evaluation hands to its model, and the counts that it gets back.

    The evaluation makes one and passes it to `LM.set_run_context` before the first request; a
    model reads it as `self.run_context`. A model that is called outside an evaluation has a
    context with the defaults below. Model classes may ignore it.
    """

    seed: int | None = None
    """Seed for sampled answers, for a model that was given none of its own."""
    chat_template: str | None = None
    """Text of the chat template that the run chose by name; None means the model's default."""
    think_end_token: str | int | None = None
    """Token after which the model's final answer begins; scoring cuts everything before it."""
    usage: Usage = field(default_factory=Usage)
    """Tokens and requests, counted by the model while it answers."""


@contextmanager
def in_context(lm: Any, context: RunContext) -> Iterator[None]:
    """Hands a context to a model while this lasts; a class without the method ignores it."""
    hand_over = getattr(lm, "set_run_context", lambda context: None)
    hand_over(context)
    try:
        yield
    finally:
        hand_over(None)
