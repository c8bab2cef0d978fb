"""`Instance`: one request to a model, together with the answers to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
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
    """Takes the place of an answer that the model could not give; `reason` is the cause.

    A model may return one among its answers (`[..., Failure("content filter"), ...]`) instead of
    raising, so that the other requests are still answered. The request is counted in
    `failed_requests`, its document is left out of the scores, and a resumed run sends it again.
    """

    reason: str


class Completion(str):
    """A generated answer that also carries what the model reported about it.

    It is a string, the answer without reasoning, and may be used as one. A model may return it from
    `generate_until`; the additional values are stored with the answer.

    >>> answer = Completion("42", reasoning="6 times 7.", finish_reason="stop")
    >>> answer == "42", answer.finish_reason
    (True, 'stop')

    Attributes:
        reasoning: the reasoning that the model returned apart from the answer; None if there is
            none.
        finish_reason: why the answer ended: "stop", "length" (the maximum length was reached), or
            another reason that the server gives; None if it is not known.
        tokens: how many tokens were generated, reasoning included; None if it is not known.
        reasoning_tokens: how many of them are reasoning; None if it is not known.
    """

    def __new__(
        cls, text: str, *details: str | int | None, **named: str | int | None
    ) -> Completion:
        return super().__new__(cls, text)

    def __init__(
        self,
        text: str,
        reasoning: str | None = None,
        finish_reason: str | None = None,
        tokens: int | None = None,
        reasoning_tokens: int | None = None,
    ) -> None:
        self.reasoning, self.finish_reason = reasoning, finish_reason
        self.tokens, self.reasoning_tokens = tokens, reasoning_tokens

    def __getnewargs__(self) -> tuple[Any, ...]:
        return str(self), *self.details.values()

    @property
    def details(self) -> dict[str, Any]:
        """All that it carries besides the text, by the names of the constructor's arguments."""
        return {
            "reasoning": self.reasoning,
            "finish_reason": self.finish_reason,
            "tokens": self.tokens,
            "reasoning_tokens": self.reasoning_tokens,
        }

    def changed(self, text: str, **details: Any) -> Completion:
        """Returns a copy with another text and, if given, other details."""
        return Completion(text, **{**self.details, **details})

    @property
    def text(self) -> str:
        """The answer as a plain string."""
        return str(self)

    @property
    def length_stopped(self) -> bool:
        """Whether the answer was cut off at its maximum length."""
        return self.finish_reason == "length"


class _Nothing:
    """The class itself marks that a request has no answer yet, or no single filter pipeline."""


def _not_set() -> None:
    """The default of a field that is stored in a slot: a class attribute would hide the slot."""
    return


class _Compact:
    """Stores the fields of a request in little memory: an evaluation may have millions of them.

    Fields that every request has are slots. The single answer that most requests have, and the
    result of the single filter pipeline that most tasks have, are stored as they are: the list
    `resps` and the dictionary `filtered_resps` are created when they are first accessed. Code that
    handles all requests uses `answers`, `add_answer`, `filtered` and `set_filtered` instead.
    """

    __slots__ = (
        *("request_type", "doc", "arguments", "idx", "metadata"),
        *("task_name", "doc_id", "repeats", "doc_number", "digest"),
        *("_answer", "_resps", "_pipeline", "_filtered"),
    )
    _answer: Any
    """The only answer; `_Nothing` if there is none. Without meaning if `_resps` is a list."""
    _resps: list[Any] | None
    _pipeline: Any
    """The name of the only filter pipeline that was applied; `_Nothing` if there is none."""
    _filtered: Any
    """The result of this pipeline; if there is none, the dictionary, or None if it is empty."""

    # Set on the few requests that have them.
    open_repeats: tuple[int, ...] | None = None
    filtered_repeats: Mapping[str, list[Any]] = MappingProxyType({})
    repeats_not_found: Mapping[str, list[bool]] = MappingProxyType({})

    @property
    def resps(self) -> list[Any]:
        if self._resps is None:
            self._resps = [] if self._answer is _Nothing else [self._answer]
        return self._resps

    @resps.setter
    def resps(self, answers: list[Any]) -> None:
        self._resps = answers

    @property
    def filtered_resps(self) -> dict[str, Any]:
        if self._pipeline is not _Nothing:
            self._pipeline, self._filtered = _Nothing, {self._pipeline: self._filtered}
        elif self._filtered is None:
            self._filtered = {}
        results: dict[str, Any] = self._filtered
        return results

    @filtered_resps.setter
    def filtered_resps(self, results: dict[str, Any]) -> None:
        self._pipeline, self._filtered = _Nothing, results

    @property
    def answers(self) -> Sequence[Any]:
        """The answers, as `resps`, in a sequence that must not be changed."""
        if self._resps is not None:
            return self._resps
        return () if self._answer is _Nothing else (self._answer,)

    def add_answer(self, answer: Any) -> None:
        """Appends an answer to `resps`."""
        if self._resps is None and self._answer is _Nothing:
            self._answer = answer
        else:
            self.resps.append(answer)

    def set_answers(self, answers: list[Any]) -> None:
        """Sets `resps`, one answer per repeat."""
        single = len(answers) == 1
        self._answer, self._resps = (answers[0], None) if single else (_Nothing, answers)

    def filtered(self, pipeline: str) -> Any:
        """Returns `filtered_resps[pipeline]`; raises `KeyError` if it was not applied."""
        return self._filtered if pipeline == self._pipeline else self.filtered_resps[pipeline]

    def set_filtered(self, pipeline: str, result: Any) -> None:
        """Sets `filtered_resps[pipeline]`."""
        if self._pipeline == pipeline or (self._pipeline is _Nothing and not self._filtered):
            self._pipeline, self._filtered = pipeline, result
        else:
            self.filtered_resps[pipeline] = result


@dataclass(init=False)
class Instance(_Compact):
    """One request to the model, made from one document.

    A task creates instances in `construct_requests`; a model reads their `args`.

    Attributes:
        request_type: the method of `LM` that answers it: "loglikelihood", "loglikelihood_rolling"
            or "generate_until".
        doc: the document (row of the dataset) that the request was made from.
        arguments: what the model gets: `(context, continuation)` for "loglikelihood", `(text,)` for
            "loglikelihood_rolling", `(context, generation settings)` for "generate_until".
        idx: the position of the request among those of its document, for example the index of the
            answer choice.
        metadata: `(task_name, doc_id, repeats)`; these three are also attributes. `doc_id` is the
            position of the document among those evaluated, from 0; `repeats` is how often the
            request is sent.
        doc_number: the index of the document in the evaluated split. It differs from `doc_id` if
            only chosen documents are evaluated.
        open_repeats: the numbers (from 0) of the repeats that the model is asked for, in order, if
            others have stored answers; None if all are asked for.
        resps: the answers, one per repeat; empty until the model has answered.
        filtered_resps: for each filter pipeline, by name, the result of filtering `resps`.
        filtered_repeats: for each filter pipeline, by name, the result of filtering each repeat as
            if it were the only answer; only of pipelines with metrics of repeated answers.
        repeats_not_found: for each of these pipelines, whether it found no answer in each repeat.
        extraction_failed: names of the filter pipelines that found no answer in `resps`.
        thinking: the thinking text that was removed from each answer; None if none was removed.
        conclusions: the answers without their thinking text, one per repeat; None as above.
        tokens: length of the continuation in tokens; set only if a metric of the task needs it.
        digest: hash of request type and arguments, under which answers are stored; None if not
            computed yet, or if the arguments cannot be hashed (images).
    """

    request_type: OutputType
    doc: Any
    arguments: tuple[Any, ...]
    idx: int
    metadata: tuple[str | None, int | None, int | None] = field(
        default_factory=lambda: (None, None, None)
    )
    resps: list[Any] = field(default_factory=list)
    filtered_resps: dict[str, Any] = field(default_factory=dict)

    task_name: str | None = field(default_factory=_not_set)
    doc_id: int | None = field(default_factory=_not_set)
    repeats: int | None = field(default_factory=_not_set)
    doc_number: int | None = field(default_factory=_not_set)

    extraction_failed: tuple[str, ...] = ()
    thinking: list[str] | None = None
    conclusions: list[Any] | None = None
    tokens: int | None = None
    digest: bytes | None = field(default_factory=_not_set)

    def __init__(
        self,
        request_type: OutputType,
        doc: Any,
        arguments: tuple[Any, ...],
        idx: int,
        metadata: tuple[str | None, int | None, int | None] = (None, None, None),
        resps: list[Any] | None = None,
        filtered_resps: dict[str, Any] | None = None,
        task_name: str | None = None,
        doc_id: int | None = None,
        repeats: int | None = None,
        doc_number: int | None = None,
        extraction_failed: tuple[str, ...] = (),
        thinking: list[str] | None = None,
        conclusions: list[Any] | None = None,
        tokens: int | None = None,
        digest: bytes | None = None,
    ) -> None:
        """Sets the fields; `task_name`, `doc_id` and `repeats` are those in `metadata`."""
        self.request_type, self.doc, self.arguments, self.idx = request_type, doc, arguments, idx
        self.metadata = metadata
        self.task_name, self.doc_id, self.repeats = metadata
        self.doc_number = self.doc_id if doc_number is None else doc_number
        self.digest = digest
        self._answer, self._resps = _Nothing, resps
        self._pipeline, self._filtered = _Nothing, filtered_resps
        # Few requests have these; the others use the defaults of the class.
        if extraction_failed:
            self.extraction_failed = extraction_failed
        if thinking is not None or conclusions is not None:
            self.thinking, self.conclusions = thinking, conclusions
        if tokens is not None:
            self.tokens = tokens

    def set_doc_number(self, number: int) -> None:
        """Sets the index of the document in the evaluated split."""
        self.doc_number = number

    def forget_answers(self) -> None:
        """Removes the answers and all that was derived from them, to score others."""
        self._answer, self._resps = _Nothing, None
        self._pipeline, self._filtered = _Nothing, None
        self.set_extraction_failed(())
        if self.filtered_repeats:
            self.filtered_repeats = self.repeats_not_found = MappingProxyType({})
        if self.thinking is not None:
            self.thinking = self.conclusions = None
        if self.tokens is not None:
            self.tokens = None

    def set_extraction_failed(self, pipelines: tuple[str, ...]) -> None:
        """Sets the names of the filter pipelines that found no answer."""
        if pipelines != self.extraction_failed:
            self.extraction_failed = pipelines

    def set_open_repeats(self, numbers: tuple[int, ...] | None) -> None:
        """Sets which repeats the model is asked for; None for all."""
        self.open_repeats = numbers

    def set_filtered_repeats(
        self, pipeline: str, answers: list[Any], not_found: list[bool]
    ) -> None:
        """Sets what a filter pipeline made of each repeat, and whether it found no answer."""
        self.filtered_repeats = {**self.filtered_repeats, pipeline: answers}
        self.repeats_not_found = {**self.repeats_not_found, pipeline: not_found}

    def set_digest(self, digest: bytes | None) -> None:
        """Sets the hash under which answers are stored; None if the request cannot be hashed."""
        self.digest = digest

    def set_tokens(self, tokens: int | None) -> None:
        """Sets the length of the continuation in tokens; None if it is not known."""
        self.tokens = tokens

    def set_thinking(self, thinking: list[str], conclusions: list[Any]) -> None:
        """Sets the thinking text removed from each answer, and the remaining answers.

        Both lists have one entry per repeat.
        """
        self.thinking, self.conclusions = thinking, conclusions

    @property
    def reasoning(self) -> list[str] | None:
        """The reasoning of each answer: returned apart from it, or removed from its text.

        None if there is none.
        """
        apart = [getattr(answer, "reasoning", None) or "" for answer in self.answers]
        if self.thinking is None:
            return apart if any(apart) else None
        pairs = zip(apart, self.thinking, strict=True)
        return ["\n".join(filter(None, pair)) for pair in pairs]

    @property
    def failed(self) -> bool:
        """Whether any of the answers is a `Failure`, so that the request cannot be scored.

        False if there are no answers yet.
        """
        return any(isinstance(answer, Failure) for answer in self.answers)

    @property
    def args(self) -> tuple[Any, ...]:
        """The arguments as a tuple; a single argument that is not a tuple is wrapped in one."""
        return self.arguments if isinstance(self.arguments, tuple) else (self.arguments,)
