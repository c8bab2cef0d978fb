"""The arguments of a document's requests, checked before they go to a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.errors import DataError


def scored_text(target: Any) -> str:
    """Returns the target of a document, which must be text to be scored."""
    if not isinstance(target, str):
        raise DataError(f"doc_to_target gave {target!r}; what is to be scored must be text.")
    return target


def check_choices(offered: Any) -> None:
    """Refuses choices that a model cannot be asked about."""
    if not offered:
        raise DataError(f"doc_to_choice gave nothing to choose from: {offered!r}.")
    if None in offered:
        raise DataError(f"doc_to_choice gave a choice that is nothing: {offered!r}.")


def check_gold(gold: Any, count: int, field: str) -> None:
    """Refuses a gold answer, given by `field`, that none of `count` choices can be."""
    for index in gold if isinstance(gold, list) else [gold]:
        if not isinstance(index, (int, str)) and not hasattr(index, "__index__"):
            raise DataError(
                f"the gold answer is {index!r}; {field} must give a choice, or the number of one."
            )
        if not isinstance(index, str) and not 0 <= index < count:
            raise DataError(
                f"the gold answer is number {index}, but there are {count} choices, numbered from "
                f"0. Correct {field}, or leave such documents out with process_docs."
            )


def pairs_of_choices(
    context: str, offered: Sequence[Any], delimiter: str, unconditional: bool
) -> list[tuple[str, str]]:
    """Returns context and continuation of every choice.

    With `unconditional`, the same continuations follow once more with an empty context.
    """
    continuations = [f"{delimiter}{choice}" for choice in offered]
    pairs = [(context, continuation) for continuation in continuations]
    return pairs + [("", continuation) for continuation in continuations if unconditional]


def pairs_of_inputs(
    contexts: Sequence[str],
    target: Any,
    offered: Sequence[Any],
    delimiter: str,
    unconditional: bool,
) -> list[tuple[str, str]]:
    """Returns one pair for every context, all continued by `target`; see `pairs_of_choices`."""
    pairs = [(context, f"{delimiter}{target}") for context in contexts]
    return pairs + [("", f"{delimiter}{choice}") for choice in offered if unconditional]
