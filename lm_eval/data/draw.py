"""Draws a random sample of documents; a larger sample contains every smaller one."""

from __future__ import annotations

import math
import random


def draw(count: int, wanted: float, seed: int, name: str) -> list[int]:
    """Returns the sorted numbers, from 0, of a random sample of a task's documents.

    All numbers are shuffled and the first ones taken. So with the same seed, a sample of 100
    documents is part of a sample of 200.

    Args:
        count: the number of documents of the task.
        wanted: the size of the sample. Below 1 it is a fraction of `count`, rounded up; otherwise a
            number of documents, rounded down and at most `count`.
        seed: the seed of the shuffle.
        name: the name of the task, so that each task gets a different sample.
    """
    size = math.ceil(count * wanted) if wanted < 1 else min(int(wanted), count)
    numbers = list(range(count))
    random.Random(f"{seed}/{name}").shuffle(numbers)
    return sorted(numbers[:size])
