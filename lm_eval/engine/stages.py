"""Measures the duration of each stage of a run and shows the current stage on the terminal."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from lm_eval.engine.progress import stage

#: The text that is shown on the terminal for each stage.
SHOWN_AS = {
    "load_tasks": "Loading tasks",
    "load_model": "Loading the model",
    "build_requests": "Building requests",
    "answer": "Running the model",
    "score": "Scoring answers",
}


class Stages:
    """A stopwatch for the stages of a run: `with stages("score"): ...`.

    `seconds` holds the time spent in each stage by its name, summed if a stage is entered again.
    The names of stages that take more than a second are shown on a terminal (`progress.stage`).
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Adds the duration of the `with` block to `seconds[name]`, also if the block raises.

        On a terminal the stage is shown by its text in `SHOWN_AS`, or by `name` if it has none.
        """
        start = time.perf_counter()
        try:
            with stage(SHOWN_AS.get(name, name)):
                yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
