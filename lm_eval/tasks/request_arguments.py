"""Builds and checks the arguments of a document's requests before they are sent to the model."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from lm_eval.errors import DataError

#: Choices of up to this many characters, such as "A" or "yes", often recur in other documents.
_SHORT = 16


def require_text(target: Any) -> str:
    """Returns `target`, the value of `doc_to_target`; raises `DataError` if it is not a string."""
    if not isinstance(target, str):
        raise DataError(
            f"doc_to_target returned {target!r}, but only text can be scored. "
            "Make doc_to_target return a string."
        )
    return target


def check_choices(choices: Any) -> None:
    """Raises `DataError` if a document's `choices` are empty or contain None."""
    if not choices:
        raise DataError(
            f"doc_to_choice returned no choices: {choices!r}. Correct doc_to_choice, or remove "
            "documents without choices with process_docs."
        )
    if None in choices:
        raise DataError(
            f"doc_to_choice returned None as a choice: {choices!r}. Correct doc_to_choice, or "
            "remove these documents with process_docs."
        )


def check_gold(gold: Any, count: int, field: str) -> None:
    """Raises `DataError` if `gold` cannot be the correct answer among `count` choices.

    `gold` is the index of a choice, the text of a choice, or a list of these. Only indices are
    checked against `count`; a string is looked up when the document is scored. `field` is the key
    of the task file that defines `gold`, for the error message.
    """
    for index in gold if isinstance(gold, list) else [gold]:
        if not isinstance(index, (int, str)) and not hasattr(index, "__index__"):
            raise DataError(
                f"the gold answer is {index!r}; {field} must return the text or the index of a "
                "choice."
            )
        if not isinstance(index, str) and not 0 <= index < count:
            raise DataError(
                f"the gold answer is number {index}, but there are {count} choices, numbered from "
                f"0. Correct {field}, or remove these documents with process_docs."
            )


def pairs_per_choice(
    context: str, choices: Sequence[Any], delimiter: str, unconditional: bool
) -> list[tuple[str, str]]:
    """Returns one `(context, continuation)` pair per choice.

    A continuation is `delimiter` followed by the choice. With `unconditional`, the same
    continuations follow a second time, each with an empty context.
    """
    continuations = [_continuation(delimiter, choice) for choice in choices]
    pairs = [(context, continuation) for continuation in continuations]
    return pairs + [("", continuation) for continuation in continuations if unconditional]


def _continuation(delimiter: str, choice: Any) -> str:
    """Returns `delimiter` followed by a choice; one string for all documents if it is short."""
    short = type(choice) is str and len(choice) <= _SHORT
    return _shared_continuation(delimiter, choice) if short else f"{delimiter}{choice}"


@lru_cache(maxsize=1024)
def _shared_continuation(delimiter: str, choice: str) -> str:
    return f"{delimiter}{choice}"


def pairs_per_context(
    contexts: Sequence[str],
    target: Any,
    choices: Sequence[Any],
    delimiter: str,
    unconditional: bool,
) -> list[tuple[str, str]]:
    """Returns one `(context, continuation)` pair per context, all with the same continuation.

    The continuation is `delimiter` followed by `target`. With `unconditional`, one pair per
    choice follows, with an empty context and the choice as its continuation.
    """
    pairs = [(context, f"{delimiter}{target}") for context in contexts]
    return pairs + [("", f"{delimiter}{choice}") for choice in choices if unconditional]
