"""What a model went through for its requests: tokens, and requests that fared badly, by task."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Usage:
    """Counted by a backend while it works; `LM.usage` tells the totals."""

    tokens_in: int = 0
    """Tokens read, as if every request were read by itself."""
    tokens_shared: int = 0
    """Of those, the ones that were not computed because another request had them."""
    tokens_out: int = 0
    """Tokens written."""
    tokens_generated: int = 0
    """Tokens generated so far, those of unfinished answers included: for the progress bar."""
    truncated: Counter[str] = field(default_factory=Counter)
    """Requests that lost some of their text, by task."""
    failed: Counter[str] = field(default_factory=Counter)
    """Requests that got no answer, by task."""

    def read(self, tokens: int, computed: int) -> None:
        """Requests of so many tokens were read, and the model was run on so many."""
        self.tokens_in += tokens
        self.tokens_shared += max(0, tokens - computed)

    def wrote(self, tokens: int) -> None:
        """Counts generated tokens."""
        self.tokens_out += tokens

    def generated(self, tokens: int) -> None:
        """Counts tokens as they are generated, before their answers are finished."""
        self.tokens_generated += tokens

    def totals(self) -> dict[str, int]:
        return {
            "tokens_in": self.tokens_in,
            "tokens_out": self.tokens_out,
            "tokens_shared": self.tokens_shared,
            "truncated": self.truncated.total(),
            "failed": self.failed.total(),
        }
