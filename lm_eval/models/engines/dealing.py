"""Divides work among engines so that requests with the same prefix stay together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Generic, TypeVar

from lm_eval.models.planned.jobs import Window

T = TypeVar("T")

#: The smallest unit of windows, in tokens: an engine computes about as many at a time.
MIN_TOKENS = 4096
#: How many units of windows a receiver gets, so that none has to wait long for the others.
UNITS_EACH = 8


class Dealer(Generic[T]):
    """Deals out units of work to receivers.

    Each has a stretch of its own, since units that follow each other have prefixes in common. A
    receiver that has finished its stretch takes the last unit of the longest one that is left.
    """

    def __init__(self, units: Sequence[T], receivers: int) -> None:
        bounds = [len(units) * number // receivers for number in range(receivers + 1)]
        self._left = [
            deque(units[bounds[number] : bounds[number + 1]]) for number in range(receivers)
        ]

    def take(self, receiver: int) -> T | None:
        """Returns the next unit of a receiver, counted from 0; None if nothing is left."""
        if self._left[receiver]:
            return self._left[receiver].popleft()
        longest = max(self._left, key=len)
        return longest.pop() if longest else None


def cut(
    items: Iterable[T], costs: Iterable[int], wanted: int, group: Callable[[T], Any]
) -> list[list[T]]:
    """Cuts `items` into lists of consecutive ones that each cost at least `wanted` in total.

    The last list may cost less. `costs` has the cost of each item. Neighbors for which `group`
    returns the same stay together.
    """
    units: list[list[T]] = []
    total = wanted
    last: Any = None
    for item, cost in zip(items, costs, strict=True):
        this = group(item)
        if total >= wanted and (not units or this != last):
            units.append([])
            total = 0
        units[-1].append(item)
        total += cost
        last = this
    return units


def score_units(windows: Sequence[Window], receivers: int) -> list[list[int]]:
    """Returns lists of positions in `windows`: the units of work to deal out to the engines.

    Positions are in the order of the windows' contexts. Windows with the same context are in the
    same unit, since they may be one request. `receivers` is the number of engines.
    """
    keys = [(tuple(w.tokens[: w.start]), tuple(w.tokens[w.start :])) for w in windows]
    order = sorted(range(len(windows)), key=lambda number: keys[number])
    costs = []
    last: tuple[int, ...] | None = None
    for number in order:
        known, rest = keys[number]
        costs.append(len(rest) + (len(known) if known != last else 0))
        last = known
    wanted = max(MIN_TOKENS, sum(costs) // (receivers * UNITS_EACH))
    return cut(order, costs, wanted, lambda number: keys[number][0])
