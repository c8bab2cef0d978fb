"""The order in which the documents of a duel are asked, and in which portions."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

FIRST_PORTION = 32
"""How many documents are asked before the first look at the scores."""

Place = tuple[str, int]
"""A task and the number of one of its documents."""


def random_order(populations: Mapping[str, int], seed: int) -> list[Place]:
    """Returns the documents of all tasks in one random order.

    The documents of a single task are in a random order in it, too, so that both the whole list and
    each task can be looked at from its beginning.

    Args:
        populations: the number of documents of each task.
        seed: the seed of the order.
    """
    places = [(name, number) for name, count in populations.items() for number in range(count)]
    random.Random(f"{seed}/duel").shuffle(places)
    return places


def next_portion(seen: int, growth: float) -> int:
    """Returns how many documents are asked after `seen` documents.

    Portions grow with what was seen, so that the number of portions grows only with its logarithm.

    Args:
        seen: the number of documents asked so far.
        growth: the size of a portion as a share of `seen`.
    """
    return max(FIRST_PORTION, int(seen * growth))


def by_task(places: Sequence[Place]) -> dict[str, list[int]]:
    """Returns the documents of each task, in the order given."""
    found: dict[str, list[int]] = {}
    for name, number in places:
        found.setdefault(name, []).append(number)
    return found
