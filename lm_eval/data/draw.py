"""Draw some documents of many: by a seed, and so that a larger draw holds every smaller one."""

from __future__ import annotations

import math
import random


def draw(count: int, wanted: float, seed: int, name: str) -> list[int]:
    """Numbers of `wanted` of `count` documents, or of that share below 1, in order.

    Each task, by its name, is drawn from on its own. All are shuffled and the first ones taken, so
    what is drawn for 100 is among what is drawn for 200.
    """
    size = math.ceil(count * wanted) if wanted < 1 else min(int(wanted), count)
    numbers = list(range(count))
    random.Random(f"{seed}/{name}").shuffle(numbers)
    return sorted(numbers[:size])
