"""GPQA's four answers in an order drawn by lot, the same in every run."""

from __future__ import annotations

import random
from typing import Any

from lm_eval.tasks.hellaswag.prompt import clean

ANSWERS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Correct Answer")


def shuffled(dataset: Any) -> Any:
    """Drawn with a seed of its own: other tasks of a run do not change the order."""
    lots = random.Random(0)

    def lay_out(doc: dict[str, Any]) -> dict[str, Any]:
        choices = [" " if doc[name] is None else clean(doc[name]) for name in ANSWERS]
        right = choices[-1]
        lots.shuffle(choices)
        named = {f"choice{number}": text for number, text in enumerate(choices, start=1)}
        return {**named, "answer": f"({'ABCD'[choices.index(right)]})"}

    return dataset.map(lay_out)
