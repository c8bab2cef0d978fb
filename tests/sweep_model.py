"""A model that notes what it is asked, for sweeps: workers load it by its file."""

from __future__ import annotations

import hashlib
import os
import signal
import time
from pathlib import Path

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM


class Noting(LM):
    """A deterministic model that notes each request before it answers.

    It writes to the file that the environment variable `SWEEP_NOTES` names.

    Args:
        pretrained: a name; part of the answers.
        pause: seconds per request.
        dies: "loading" ends the process while the model is loaded, "answering" at the first
            request.
    """

    def __init__(self, pretrained: str = "a", pause: float = 0.0, dies: str = "") -> None:
        super().__init__()
        self.name, self.pause, self.dies = str(pretrained), pause, dies
        self.notes = Path(os.environ["SWEEP_NOTES"])
        if self.name == "broken":
            raise RuntimeError("the weights are damaged")
        if dies == "loading":
            os.kill(os.getpid(), signal.SIGKILL)

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        answers = []
        for request in requests:
            if self.dies == "answering":
                os.kill(os.getpid(), signal.SIGKILL)
            text = "|".join([self.name, *request.args])
            value = int(hashlib.md5(text.encode()).hexdigest()[:8], 16)
            with self.notes.open("a") as file:
                file.write(f"{value}\n")
            time.sleep(self.pause)
            answers.append((-value / 2**32, value % 3 == 0))
            self.cache_hook.add_partial("loglikelihood", request.args, answers[-1])
        return answers

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        raise NotImplementedError

    def generate_until(self, requests: list[Instance]) -> list[str]:
        raise NotImplementedError
