"""Scoring for IFEval: strict and loose accuracy, each per prompt and per instruction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.tasks.ifeval import language
from lm_eval.tasks.ifeval.checks import is_followed

language.require()


def _loose_variants(text: str) -> list[str]:
    """Returns the variants of a response of which one must pass in the loose scores.

    They are the response without its first line, its last line or both, each with and without
    asterisks, and the response itself.
    """
    lines = text.split("\n")
    kept = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return kept + [part.replace("*", "") for part in kept]


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """Returns the four scores: a bool for the prompt, or one bool per instruction."""
    instructions = list(zip(doc["instruction_id_list"], doc["kwargs"], strict=True))
    response = results[0]
    variants = _loose_variants(response)
    strict = [is_followed(response, name, settings) for name, settings in instructions]
    loose = [
        any(is_followed(text, *instruction) for text in variants) for instruction in instructions
    ]
    return {
        "prompt_level_strict_acc": all(strict),
        "inst_level_strict_acc": strict,
        "prompt_level_loose_acc": all(loose),
        "inst_level_loose_acc": loose,
    }


def over_instructions(items: Sequence[Sequence[bool]]) -> float:
    """Returns the share of all instructions, over all documents, that are followed."""
    followed = [passed for document in items for passed in document]
    return sum(followed) / len(followed)
