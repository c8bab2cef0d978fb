"""A request: one question put to a model, with the answers it got."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

RequestType = Literal["loglikelihood", "loglikelihood_rolling", "generate_until"]
OutputType = Literal["loglikelihood", "loglikelihood_rolling", "generate_until", "multiple_choice"]

OUTPUT_TYPES: tuple[OutputType, ...] = (
    "loglikelihood",
    "multiple_choice",
    "loglikelihood_rolling",
    "generate_until",
)


@dataclass(frozen=True)
class Failure:
    """Stands in the place of an answer that the model could not give, and says why.

    A model may return one among its answers (`[..., Failure("content filter"), ...]`) instead of
    raising, so that the other requests go on. The request is counted in `failed_requests`, its
    document is left out of the scores, and a resumed run asks it again.
    """

    reason: str


@dataclass
class Instance:
    """One request of one document.

    `arguments` is what the model is given: `(context, continuation)`, `(text,)` or
    `(context, generation settings)`. `resps` holds one answer per repeat; `filtered_resps` what
    each filter pipeline made of them, and `extraction_failed` the pipelines that found nothing in
    them. Where thinking text was cut from the answers, `thinking` holds it and `conclusions` the
    rest, one per repeat. `tokens` is the length of the continuation, where a metric asks for it;
    `digest` is what the request is known by where answers are kept.
    `metadata` is `(task name, document number, repeats)`.
    """

    request_type: OutputType
    doc: Any
    arguments: tuple[Any, ...]
    idx: int
    metadata: tuple[str | None, int | None, int | None] = (None, None, None)
    resps: list[Any] = field(default_factory=list)
    filtered_resps: dict[str, Any] = field(default_factory=dict)

    task_name: str | None = None
    doc_id: int | None = None
    repeats: int | None = None

    extraction_failed: tuple[str, ...] = ()
    thinking: list[str] | None = None
    conclusions: list[Any] | None = None
    tokens: int | None = None
    digest: bytes | None = None

    def __post_init__(self) -> None:
        self.task_name, self.doc_id, self.repeats = self.metadata

    def set_answers(self, answers: list[Any]) -> None:
        """Sets `resps`, one answer per repeat."""
        self.resps = answers

    def set_digest(self, digest: bytes | None) -> None:
        """Sets what the request is known by in a store; None for one that cannot be stored."""
        self.digest = digest

    def set_tokens(self, tokens: int | None) -> None:
        """Sets the length of the continuation in tokens."""
        self.tokens = tokens

    def set_thinking(self, thinking: list[str], conclusions: list[Any]) -> None:
        """Sets the thinking text that was cut from each answer, and what was left of it."""
        self.thinking, self.conclusions = thinking, conclusions

    @property
    def failed(self) -> bool:
        """Whether it has no answer that could be scored."""
        return any(isinstance(answer, Failure) for answer in self.resps)

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments as a tuple, however they were given."""
        return self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)
