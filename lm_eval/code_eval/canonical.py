"""What the documents of code tasks contain: canonical solutions, and prompts that are code."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The columns in which datasets store them: HumanEval and its variants, MBPP and its variants.
COLUMNS = ("canonical_solution", "code")
#: The column in which HumanEval and its variants have the code that a program completes.
PROMPT_COLUMN = "prompt"


def canonical_answers(doc: Any) -> list[tuple[str, str]]:
    """Returns each canonical solution of a document, with answers that a model could give with it.

    The first answer is the solution alone; the second ends the code block that the prompt has
    opened, for tasks that extract a block. Empty if the document has no canonical solution.
    """
    if not isinstance(doc, Mapping):
        return []
    solutions = [doc[name] for name in COLUMNS if isinstance(doc.get(name), str)]
    return [(s, answer) for s in solutions for answer in (s, f"\n{s}\n```\n")]


def prompt_of(doc: Any) -> str:
    """Returns the text that programs for a document may begin with; "" if it has none."""
    text = doc.get(PROMPT_COLUMN) if isinstance(doc, Mapping) else None
    return text if isinstance(text, str) else ""
