"""Prompt for MuSR, whose dataset has the choices as the text of a Python list."""

from __future__ import annotations

import ast
from typing import Any


def question(doc: dict[str, Any]) -> str:
    """Returns the prompt: the story, the question and the numbered choices."""
    choices = ast.literal_eval(doc["choices"])
    listed = "".join(f"{number} - {choice}\n" for number, choice in enumerate(choices, start=1))
    return f"{doc['narrative']}\n\n{doc['question']}\n\n{listed}\nAnswer:"
