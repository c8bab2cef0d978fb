"""Seeded drawing and the rule that keeps the test's content out of the training text."""

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
    """Whether a piece of content belongs to the test alone.

    The key names what makes a document what it is (an operand pair, a person with a thing at a
    place, a plot with its ending). Hashing it splits the world itself in two, so that no choice of
    seed can bring a test document into the training text.
    """
    digest = hashlib.blake2b(repr(key).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % HELD_OUT_ONE_IN == 0


@cache
def _weights(count: int) -> tuple[float, ...]:
    return tuple(accumulate(1.0 / (rank + 4) for rank in range(count)))


def pick(rng: random.Random, items: Sequence[T]) -> T:
    """Draw with a mild preference for earlier items, so that words differ in how rare they are."""
    return rng.choices(items, cum_weights=_weights(len(items)))[0]


def pick_distinct(rng: random.Random, items: Sequence[T], count: int) -> list[T]:
    """Draw several different items, earlier ones more often."""
    found: list[T] = []
    while len(found) < count:
        item = pick(rng, items)
        if item not in found:
            found.append(item)
    return found


def until_split(
    draw: Callable[[], D], keys: Callable[[D], Sequence[tuple[object, ...]]], *, test: bool
) -> D:
    """Draw until the content falls on the wanted side: all keys held out, or none of them."""
    while True:
        drawn = draw()
        if all(held_out(*key) == test for key in keys(drawn)):
            return drawn


class Person:
    """A name with its pronouns."""

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
    """Put the indefinite article before a phrase."""
    return ("an " if phrase[0] in "aeiou" else "a ") + phrase


def capital(sentence: str) -> str:
    """Begin a sentence with a capital letter and leave the rest as it is."""
    return sentence[0].upper() + sentence[1:]
