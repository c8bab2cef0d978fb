"""Repeats of a prompt: the order in which their answers are reported, and their seeds."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from lm_eval.api.instance import Instance


class RepeatOrder:
    """Holds answers back until those of earlier repeats of the same request are there.

    Used if answers cannot be reported with their positions (`CacheHook.add_at`): they are then
    stored in the order in which they are reported. A run that continues after a crash takes the
    repeats without a stored answer for the last ones, and must not use the seed of a stored answer
    again (`repeat_numbers`).
    """

    def __init__(self, requests: Sequence[Instance]) -> None:
        """Takes all requests; the repeats of a request are the same object."""
        self._requests = requests
        self._answered: set[int] = set()
        self._left: dict[int, list[int]] = {}  # by request; the first repeat is the last item
        for number in range(len(requests) - 1, -1, -1):
            self._left.setdefault(id(requests[number]), []).append(number)

    def add(self, numbers: Sequence[int]) -> list[int]:
        """Takes the positions of new answers; returns those that can be reported now, sorted.

        These are the new ones and those held back before whose earlier repeats are all answered.
        """
        self._answered.update(numbers)
        ready = []
        for request in dict.fromkeys(id(self._requests[number]) for number in numbers):
            left = self._left[request]
            while left and left[-1] in self._answered:
                ready.append(left.pop())
        return sorted(ready)


def seed_of_prompt(seed: int, text: str) -> int:
    """Returns the seed of the first answer to a prompt; each repeat has the next larger one.

    It is a hash of `seed`, that of the run, and `text`, the prompt.

    With the same seed for all prompts, their random numbers would be the same too, and errors of
    sampling would not average out over documents.
    """
    digest = hashlib.blake2b(f"{seed} {text}".encode("utf-8", "surrogatepass"), digest_size=4)
    return int.from_bytes(digest.digest(), "big") >> 1
