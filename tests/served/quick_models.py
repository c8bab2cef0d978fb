"""Served models that retry within milliseconds, for tests; named by the path of this file."""

from __future__ import annotations

from typing import Any, ClassVar

from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.retry import RetryPolicy


class QuickCompletions(ServedLM):
    """A server with the completions API."""

    retry_policy: ClassVar[RetryPolicy] = RetryPolicy(base=0.01, longest=0.1)

    def identity(self) -> dict[str, Any]:
        """Returns that of the server: otherwise the code of the imported tests is part of it."""
        return super().identity()


class QuickChat(QuickCompletions):
    """A server with the chat API."""

    kind: ClassVar[str] = "chat"
