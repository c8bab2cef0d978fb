"""A model that knows a share of the answers and keeps what it is asked; a noised demo model."""

from __future__ import annotations

import shutil
import weakref
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model
from lm_eval.models.demo.model import WEIGHTS

ASKED: list[tuple[str, str]] = []
"""The prompts that models were asked, each with the name of the model."""
ALIVE: weakref.WeakSet[LM] = weakref.WeakSet()
MOST_ALIVE = [0]
BREAKS_AFTER: dict[str, int] = {}
"""After how many requests the model of a name fails."""


@register_model("skilled")
class Skilled(LM):
    """A model that knows the answers to `skill` percent of the questions."""

    def __init__(self, pretrained: str, skill: int) -> None:
        super().__init__()
        self.name, self.skill = pretrained, skill
        ALIVE.add(self)
        MOST_ALIVE[0] = max(MOST_ALIVE[0], len(ALIVE))

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        answers = []
        for request in requests:
            prompt, continuation = request.args[0].splitlines()[-1], request.args[1]
            if self.name in BREAKS_AFTER:
                BREAKS_AFTER[self.name] -= 1
                if BREAKS_AFTER[self.name] < 0:
                    raise RuntimeError("the power failed")
            ASKED.append((self.name, request.args[0]))
            number = int(prompt.split()[1])
            knows = number * 37 % 100 < self.skill
            answer = (0.0 if (continuation == " yes") == knows else -1.0, True)
            self.cache_hook.add_partial("loglikelihood", request.args, answer)
            answers.append(answer)
        return answers

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError


def noised_copy(folder: Path) -> Path:
    """Writes a copy of the demo model with noised weights to `folder`, and returns it."""
    shutil.copytree(WEIGHTS, folder)
    generator = np.random.default_rng(5)
    weights = {
        name: (values + generator.normal(0, values.std(), values.shape)).astype(values.dtype)
        for name, values in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors")
    return folder
