"""Scoring for IFEval: strict and loose accuracy, each per prompt and per instruction.

Contains the functions of the published module of this name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lm_eval.helpers import ifeval_language
from lm_eval.helpers.ifeval_checks import follows_instruction

ifeval_language.require()  # before the model generates anything


@dataclass
class InputExample:
    """A document: its number, prompt, and instructions with the settings of each."""

    key: int
    instruction_id_list: list[str]
    prompt: str
    kwargs: list[dict[str, Any]]


@dataclass
class OutputExample:
    """A response, and which of the instructions it follows."""

    instruction_id_list: list[str]
    prompt: str
    response: str
    follow_all_instructions: bool
    follow_instruction_list: list[bool]


def test_instruction_following_strict(inp: InputExample, response: str) -> OutputExample:
    """Returns which instructions a response follows."""
    return _tested(inp, response, [response])


def test_instruction_following_loose(inp: InputExample, response: str) -> OutputExample:
    """Returns which instructions a response or one of its variants follows.

    The variants are the response without its first line, its last line or both, each with and
    without asterisks, and the response without asterisks.
    """
    lines = response.split("\n")
    cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
    kept = [response, *cut]
    return _tested(inp, response, kept + [text.replace("*", "") for text in kept])


def _tested(inp: InputExample, response: str, variants: Sequence[str]) -> OutputExample:
    """Returns which instructions one of the variants of a response follows."""
    pairs = list(zip(inp.instruction_id_list, inp.kwargs, strict=True))
    followed = [any(follows_instruction(text, *pair) for text in variants) for pair in pairs]
    return OutputExample(inp.instruction_id_list, inp.prompt, response, all(followed), followed)


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    """Returns the four scores: a bool for the prompt, or one bool per instruction."""
    inp = InputExample(doc["key"], doc["instruction_id_list"], doc["prompt"], doc["kwargs"])
    strict = test_instruction_following_strict(inp, results[0])
    loose = test_instruction_following_loose(inp, results[0])
    return {
        "prompt_level_strict_acc": strict.follow_all_instructions,
        "inst_level_strict_acc": strict.follow_instruction_list,
        "prompt_level_loose_acc": loose.follow_all_instructions,
        "inst_level_loose_acc": loose.follow_instruction_list,
    }


def agg_inst_level_acc(items: Sequence[Sequence[bool]]) -> float:
    """Returns the share of all instructions, over all documents, that are followed."""
    followed = [passed for document in items for passed in document]
    return sum(followed) / len(followed)
