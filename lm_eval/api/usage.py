"""Counts of the tokens that a model processed, and of truncated and failed requests."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Usage:
    """Counters that a model class updates while it answers; `LM.usage` may return `totals()`."""

    tokens_in: int = 0
    """Prompt tokens of all requests, counted as if no prefix were shared between requests."""
    tokens_shared: int = 0
    """How many of `tokens_in` were not computed, because they were shared with another request."""
    tokens_out: int = 0
    """Tokens of finished answers."""
    tokens_generated: int = 0
    """Tokens generated so far, including those of unfinished answers; for the progress bar."""
    truncated: Counter[str] = field(default_factory=Counter)
    """By task name: requests whose text was too long for the model and was cut."""
    failed: Counter[str] = field(default_factory=Counter)
    """By task name: requests that got no answer."""

    def count_prompt(self, tokens: int, computed: int) -> None:
        """Adds `tokens` to `tokens_in`, and `tokens - computed` (at least 0) to `tokens_shared`.

        `tokens` is the number of prompt tokens of one or more requests; `computed` is how many of
        them were run through the model.
        """
        self.tokens_in += tokens
        self.tokens_shared += max(0, tokens - computed)

    def count_answer(self, tokens: int) -> None:
        """Adds `tokens`, the number of tokens of finished answers, to `tokens_out`."""
        self.tokens_out += tokens

    def count_generated(self, tokens: int) -> None:
        """Adds `tokens` to `tokens_generated`: tokens whose answers may not be finished yet."""
        self.tokens_generated += tokens

    def add(self, other: Usage) -> None:
        """Adds the counts of another object, such as those of a model in another process."""
        self.tokens_in += other.tokens_in
        self.tokens_shared += other.tokens_shared
        self.tokens_out += other.tokens_out
        self.tokens_generated += other.tokens_generated
        self.truncated.update(other.truncated)
        self.failed.update(other.failed)

    def totals(self) -> dict[str, int]:
        """Returns the counts over all tasks, with the keys that `LM.usage` documents.

        These are `tokens_in`, `tokens_out`, `tokens_shared`, `truncated` and `failed`.
        """
        return {
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "tokens_shared": self.tokens_shared,
            "truncated": self.truncated.total(),
            "failed": self.failed.total(),
        }
