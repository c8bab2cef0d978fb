"""Methods of the published `HFLM` that only subclasses with their own batch loops call."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from torch import Tensor

from lm_eval.models.huggingface.base import HuggingFaceModel
from lm_eval.models.huggingface.memory import TokenBudget


class LoopSupport(HuggingFaceModel):
    """Adds the published helper methods for batch loops, and the token budget."""

    batch_schedule: float = 1

    @cached_property
    def budget(self) -> TokenBudget:
        """The limits on what one forward pass computes."""
        return TokenBudget(self._torch_device)

    def _select_cont_toks(
        self, logits: Tensor, contlen: int | None = None, inplen: int | None = None
    ) -> Tensor:
        """Returns the logits (`contlen`, V) that predict the continuation of one request.

        For an encoder-decoder model, they are the first `contlen` rows, or all if that is None. A
        causal model needs both numbers, otherwise `AssertionError` is raised.

        Args:
            logits: the logits (T, V) of all positions, with any padding at the end.
            contlen: the number of tokens of the continuation.
            inplen: for causal models, the number of tokens that were read.
        """
        if self.backend != "causal":
            return logits[:contlen]
        assert contlen, "contlen must be given for a causal model"
        assert inplen, "inplen must be given for a causal model"
        return logits[inplen - contlen : inplen]

    def _detect_batch_size(self, requests: Sequence[Any] | None = None, pos: int = 0) -> int:
        """Returns how many requests as long as `requests[pos]` fit into a batch, at least 1.

        A request is `(texts, context tokens, continuation tokens)`. If `requests` is None or empty,
        requests of `max_length` tokens are assumed.
        """
        length = self.max_length
        if requests:
            _, context, continuation = requests[pos]
            length = max(1, min(length, len(context) + len(continuation) - 1))
        scores = 4 * int(getattr(self.config, "vocab_size", 1 << 15))
        tokens = min(self.budget.tokens, 8 * self.budget.logit_bytes // scores)
        return max(1, tokens // length)

    def _batch_scheduler(self, pos: int, n_reordered_requests: Sequence[Any]) -> int:
        """Returns the batch size from the request at index `pos` on, in requests sorted by length.

        It is the result of `_detect_batch_size` for requests as long as that one.
        """
        return self._detect_batch_size(n_reordered_requests, pos)
