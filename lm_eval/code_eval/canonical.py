"""The canonical solutions that documents of code tasks contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The columns in which datasets store them: HumanEval and its variants, MBPP and its variants.
COLUMNS = ("canonical_solution", "code")


def canonical_answers(doc: Any) -> list[str]:
    """Returns answers that a model could give with the canonical solution of a document.

    The first is the solution alone; the second ends the code block that the prompt has opened, for
    tasks that extract a block. Empty if the document has no canonical solution.
    """
    if not isinstance(doc, Mapping):
        return []
    solution = next((doc[name] for name in COLUMNS if isinstance(doc.get(name), str)), None)
    return [] if solution is None else [solution, f"\n{solution}\n```\n"]
