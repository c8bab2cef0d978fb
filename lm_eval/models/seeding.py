"""Seeds the random generators that models use."""

from __future__ import annotations

import random
import sys

import numpy as np

from lm_eval.config.run import Seeds


def seed_generators(seeds: Seeds) -> None:
    """Seeds `random`, numpy and, if it is imported, torch; a seed of None changes nothing.

    The few-shot seed is not used here.
    """
    if seeds.random is not None:
        random.seed(seeds.random)
    if seeds.numpy is not None:
        np.random.seed(seeds.numpy)
    if seeds.torch is not None and "torch" in sys.modules:
        sys.modules["torch"].manual_seed(seeds.torch)
