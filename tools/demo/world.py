"""The little world's training text: documents of four kinds in a fixed, seeded mixture."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tools.demo.scenes import scene_document
from tools.demo.sentences import sentence_document
from tools.demo.stories import story_document
from tools.demo.sums import sum_document

TRAINING_SEED = 20
SHARDS = 120
SHARD_DOCUMENTS = 2_500

KINDS: dict[str, tuple[Callable[[random.Random], str], float]] = {
    "scenes": (scene_document, 0.8),
    "sentences": (sentence_document, 0.04),
    "stories": (story_document, 0.05),
    "sums": (sum_document, 0.014),
}


def shard(number: int, *, seed: int = TRAINING_SEED, count: int = SHARD_DOCUMENTS) -> Iterator[str]:
    """Yield one shard of the training text; shards can be made alone and in any order.

    This is the text before `overlap.clean` removes what it shares with the benchmark.
    """
    rng = random.Random(f"little world {seed} {number}")
    makers = [maker for maker, _ in KINDS.values()]
    weights = [weight for _, weight in KINDS.values()]
    for _ in range(count):
        yield rng.choices(makers, weights)[0](rng)
