"""How long each stage of a run takes, and its name on the terminal meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lm_eval.engine.progress import stage

SHOWN_AS = {
    "load_tasks": "Loading tasks",
    "load_model": "Loading the model",
    "build_requests": "Building requests",
    "answer": "Asking the model",
    "score": "Scoring answers",
}


class Stages:
    """Seconds by stage; a stage that is entered again goes on counting.

    On a terminal, a stage that takes more than a second is named there (`progress.stage`).
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            with stage(SHOWN_AS.get(name, name)):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
