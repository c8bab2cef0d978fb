"""Random sampling, and the rule that keeps test content out of the training text."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Sequence
from functools import cache
from itertools import accumulate
from typing import TypeVar

from tools.demo import lexicon as lex

T = TypeVar("T")
D = TypeVar("D")

HELD_OUT_ONE_IN = 10


@cache
def held_out(*key: object) -> bool:
    """Returns whether content with this `key` is reserved for the test documents.

    The key is what defines a document: two operands, a person with a thing at a place, a plot with
    its ending. The key's hash decides, independent of any seed, so that no seed can generate test
    content as training text.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


@cache
def _weights(count: int) -> tuple[float, ...]:
    """Returns the cumulative weights of `count` items, for `pick`."""
    return tuple(accumulate(1.0 / (rank + 4) for rank in range(count)))


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """Returns a random item; earlier items are likelier, so that words differ in frequency."""
    return rng.choices(items, cum_weights=_weights(len(items)))[0]


def pick_distinct(rng: random.Random, items: Sequence[T], count: int) -> list[T]:
    """Returns `count` different random items; earlier items are likelier."""
    found: list[T] = []
    while len(found) < count:
        item = pick(rng, items)
        if item not in found:
            found.append(item)
    return found


def until_split(
    draw: Callable[[], D], keys: Callable[[D], Sequence[tuple[object, ...]]], *, test: bool
) -> D:
    """Returns the first result of `draw` whose keys are all held out (`test`), or none of them."""
    while True:
        drawn = draw()
        if all(held_out(*key) == test for key in keys(drawn)):
            return drawn


class Person:
    """A person of the generated texts: a name with its pronouns."""

    def __init__(self, name: str, woman: bool) -> None:
        self.name = name
        self.she = "she" if woman else "he"
        self.her = "her" if woman else "him"
        self.hers = "her" if woman else "his"
        self.herself = "herself" if woman else "himself"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Person) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


PEOPLE = tuple(
    Person(name, woman)
    for pair in zip(lex.WOMEN, lex.MEN, strict=True)
    for name, woman in zip(pair, (True, False), strict=True)
)


def a(phrase: str) -> str:
    """Returns `phrase` with its indefinite article, "a" or "an"."""
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def capital(sentence: str) -> str:
    """Returns `sentence` with its first letter in upper case."""
    return sentence[0].upper() + sentence[1:]
