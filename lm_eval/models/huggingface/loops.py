"""Published methods that subclasses with their own loops call; nothing in this package does."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.memory import Budget


class WithLoops(HuggingFaceModel):
    """Adds the published methods for batches of equal size, and the token budget."""

    batch_schedule: float = 1

    @cached_property
    def budget(self) -> Budget:
        """The token budget of one batch."""
        return Budget(self._device)

    def _select_cont_toks(
        self, logits: Tensor, contlen: int | None = None, inplen: int | None = None
    ) -> Tensor:
        """Returns the scores (T, V) of a continuation out of those of all tokens."""
        if self.backend != "causal":
            return logits[:contlen]
        assert contlen, "a continuation has tokens"
        assert inplen, "and stands at the end of what was read"
        return logits[inplen - contlen : inplen]

    def _detect_batch_size(self, requests: Sequence[Any] | None = None, pos: int = 0) -> int:
        """Returns how many requests as long as the one at `pos` fit into a batch."""
        length = self.max_length
        if requests:
            _, context, continuation = requests[pos]
            length = max(1, min(length, len(context) + len(continuation) - 1))
        scores = 4 * int(getattr(self._config, "vocab_size", 1 << 15))
        tokens = min(self.budget.tokens, 8 * self.budget.logit_bytes // scores)
        return max(1, tokens // length)

    def _batch_scheduler(self, pos: int, n_reordered_requests: Sequence[Any]) -> int:
        return self._detect_batch_size(n_reordered_requests, pos)
