"""Generates arithmetic word problems with worked solutions."""

from __future__ import annotations

import random
from dataclasses import dataclass

from tools.demo import lexicon as lex
from tools.demo.draw import PEOPLE, held_out, pick, pick_distinct


@dataclass(frozen=True)
class Sum:
    """A word problem: the question, the worked solution and the number it ends with.

    `keys` identify its calculation steps; they decide whether it is training or test content.
    """

    question: str
    working: str
    number: int
    keys: tuple[tuple[object, ...], ...]


def _number(rng: random.Random, top: int = 99) -> int:
    """Returns a random number up to `top`; 30 % are drawn from 1 to 9."""
    return rng.randint(1, 9) if rng.random() < 0.3 else rng.randint(1, top)


def _draw_sum(rng: random.Random, steps: int) -> Sum:
    one, other = pick_distinct(rng, PEOPLE, 2)
    things = pick(rng, lex.FOODS).many
    total = _number(rng)
    told = [f"{one.name} has {total} {things}"]
    working, keys = [], []
    for _ in range(steps):
        if total > 9 and rng.random() < 0.5:
            change = _number(rng, total)
            change = change if change < total else total - 1
            after, sign = total - change, "-"
            told.append(
                rng.choice(
                    (
                        f"gives {change} to {other.name}",
                        f"loses {change} of them",
                        f"sells {change} at the market",
                    )
                )
            )
        else:
            change = _number(rng)
            after, sign = total + change, "+"
            told.append(
                rng.choice(
                    (
                        f"finds {change} more",
                        f"gets {change} from {other.name}",
                        f"buys {change} more",
                    )
                )
            )
        keys.append(("sum", sign, *sorted((total, change))))
        working.append(f"{total} {sign} {change} = {after}.")
        total = after
    story = " and ".join(told) if steps == 1 else f"{told[0]}, {told[1]} and {told[2]}"
    question = f"{story}. How many {things} does {one.name} have now?"
    working.append(f"The answer is {total}.")
    return Sum(question, " ".join(working), total, tuple(keys))


def draw_sum(rng: random.Random, *, test: bool, steps: int) -> Sum:
    """Returns a random word problem with `steps` calculation steps.

    The first step of a test problem is held out; a training problem has no held-out step.
    """
    while True:
        drawn = _draw_sum(rng, steps)
        if test and held_out(*drawn.keys[0]):
            return drawn
        if not test and not any(held_out(*key) for key in drawn.keys):
            return drawn


def sum_document(rng: random.Random) -> str:
    """Returns a training document of one to six word problems."""
    blocks = []
    for _ in range(rng.choice((1, 2, 3, 4, 6))):
        drawn = draw_sum(rng, test=False, steps=1 if rng.random() < 0.7 else 2)
        blocks.append(f"Q: {drawn.question}\nA: {drawn.working}")
    return "\n\n".join(blocks)
