"""Generates the demo model's training text: four kinds of document, mixed with a fixed seed."""

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

#: The generators of documents, and their weights in the mixture.
KINDS: dict[str, tuple[Callable[[random.Random], str], float]] = {
    "scenes": (scene_document, 0.8),
    "sentences": (sentence_document, 0.04),
    "stories": (story_document, 0.05),
    "sums": (sum_document, 0.014),
}


def shard(number: int, *, seed: int = TRAINING_SEED, count: int = SHARD_DOCUMENTS) -> Iterator[str]:
    """Yields the documents of one shard of the training text.

    Each shard has its own seed, so shards can be generated independently. `overlap.clean` has not
    removed the documents that overlap with the benchmark yet.
    """
    rng = random.Random(f"little world {seed} {number}")
    makers = [maker for maker, _ in KINDS.values()]
    weights = [weight for _, weight in KINDS.values()]
    for _ in range(count):
        yield rng.choices(makers, weights)[0](rng)
