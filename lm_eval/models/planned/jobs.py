"""What is asked of a server or engine: windows to score, and prompts to answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Score = tuple[float, bool]
"""The log-likelihood of a continuation, and whether greedy decoding would produce it."""

Message = Mapping[str, Any]
"""One message of a chat: `role` and `content`."""


@dataclass(frozen=True)
class Prompt:
    """A prompt in the forms that are known; the form that the model accepts is sent.

    Attributes:
        text: the prompt as text; for a chat, the messages as JSON.
        tokens: its token ids; None if requests are sent as text.
        messages: the messages of a chat; None for plain text.
    """

    text: str
    tokens: Sequence[int] | None = None
    messages: Sequence[Message] | None = None


@dataclass(frozen=True)
class Sampling:
    """The generation settings of one request.

    Attributes:
        until: strings that end the answer.
        max_tokens: the maximum length of the answer.
        temperature: 0 for greedy decoding.
        seed: for sampled answers; None to send none.
        samples: how many answers are wanted.
        after_thought: whether the prompt contains the whole thought of the model, so that all stop
            strings apply.
        others: further settings, which are passed on under the names that the task gives them.
    """

    until: Sequence[str] = ()
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int | None = None
    samples: int = 1
    after_thought: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GenerationJob:
    """One prompt, and the positions of the requests that its answers belong to.

    There are as many positions as `sampling.samples`.
    """

    requests: tuple[int, ...]
    prompt: Prompt
    sampling: Sampling


@dataclass(frozen=True)
class Window:
    """Tokens to be scored: those from position `start` on, given the ones before.

    Attributes:
        tokens: context and continuation.
        start: how many of them are context; at least 1.
        text: the same as text, for servers that accept only text; None if it is not known.
        boundary: the number of characters of `text` that are context.
    """

    tokens: Sequence[int]
    start: int
    text: str | None = None
    boundary: int = 0

    @property
    def is_empty(self) -> bool:
        """Whether there is no token to score: the continuation is empty."""
        return len(self.tokens) <= self.start


def groups(items: Sequence[Any], size: int) -> list[list[Any]]:
    """Returns the items in lists of `size`; the last one may be shorter."""
    return [list(items[i : i + size]) for i in range(0, len(items), size)]
