"""IFEval's four scores: by prompt and by instruction, as the response is and leniently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lm_eval.tasks.ifeval import language
from lm_eval.tasks.ifeval.checks import followed

language.require()


def _lenient(text: str) -> list[str]:
    """The response, perhaps without its first line, its last line, its asterisks."""
    lines = text.split("\n")
    kept = [text, *("\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1]))]
    return kept + [part.replace("*", "") for part in kept]


def process_results(doc: dict[str, Any], results: list[str]) -> dict[str, Any]:
    told = list(zip(doc["instruction_id_list"], doc["kwargs"], strict=True))
    response = results[0]
    versions = _lenient(response)
    strict = [followed(response, name, settings) for name, settings in told]
    loose = [any(followed(text, *instruction) for text in versions) for instruction in told]
    return {
        "prompt_level_strict_acc": all(strict),
        "inst_level_strict_acc": strict,
        "prompt_level_loose_acc": all(loose),
        "inst_level_loose_acc": loose,
    }


def over_instructions(items: Sequence[Sequence[bool]]) -> float:
    every = [done for document in items for done in document]
    return sum(every) / len(every)
