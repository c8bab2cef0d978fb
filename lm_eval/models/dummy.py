"""A model with random answers, for testing and timing everything except the model."""

from __future__ import annotations

import random
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model


@register_model("dummy")
class DummyLM(LM):
    """Answers with random log-likelihoods and a constant text.

    The random numbers come from the module `random`, which the run seeds.
    """

    stand_in = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def loglikelihood(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[tuple[float, bool]]:
        return [(-random.random(), False) for _ in requests]

    def loglikelihood_rolling(
        self, requests: list[Instance], disable_tqdm: bool = False
    ) -> list[float]:
        return [-random.random() for _ in requests]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        return ["lol" for _ in requests]
