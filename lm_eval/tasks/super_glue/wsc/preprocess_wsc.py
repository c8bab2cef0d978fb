"""Prompt for the Winograd Schema Challenge."""

from __future__ import annotations

from typing import Any

from lm_eval.utils import general_detokenize


def question(doc: dict[str, Any]) -> str:
    """Returns the prompt: the passage with the pronoun between asterisks, and the question.

    `span2_index` is the pronoun's position counted in words.
    """
    text, pronoun, noun = doc["text"], doc["span2_text"], doc["span1_text"]
    before = " ".join(text.split()[: doc["span2_index"]])
    after = text[len(before) + len(pronoun) + 1 :]
    passage = general_detokenize(f"{before} *{pronoun}*{after}")
    return (
        f"Passage: {passage}\n"
        f'Question: In the passage above, does the pronoun "*{pronoun}*" refer to "*{noun}*"?\n'
        "Answer:"
    )
