"""Shuffles GPQA's four answers, in the same order in every run."""

from __future__ import annotations

import random
from typing import Any

from lm_eval.tasks.hellaswag.utils import preprocess

ANSWERS = ("Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3", "Correct Answer")


def shuffled(dataset: Any) -> Any:
    """Returns documents with shuffled choices, `choice1` to `choice4`, and `answer` as "(B)".

    The shuffle has its own seed, so that other tasks of a run do not change the order.
    """
    rng = random.Random(0)

    def shuffle_choices(doc: dict[str, Any]) -> dict[str, Any]:
        choices = [" " if doc[name] is None else preprocess(doc[name]) for name in ANSWERS]
        right = choices[-1]
        rng.shuffle(choices)
        named = {f"choice{number}": text for number, text in enumerate(choices, start=1)}
        return {**named, "answer": f"({'ABCD'[choices.index(right)]})"}

    return dataset.map(shuffle_choices)
