"""Measures what evaluations during training spend outside the model.

usage: python benchmarks/live.py [--model DIR] [--tasks NAMES] [--limit N] [--evaluations N]

Evaluates a live model several times with one `LiveTasks`, as a training run does. The time inside
the model is that of the methods that answer requests, without that of encoding their texts. The
second evaluation should spend less than 5 % of the first one's time outside the model. Also prints
what both spend there, and the seconds of each stage.
"""

from __future__ import annotations

import argparse
import functools
import time
from pathlib import Path
from typing import Any

from transformers import AutoModelForCausalLM, AutoTokenizer

from lm_eval.live import LiveTasks, evaluate_live
from lm_eval.models.huggingface.live import RememberingEncoder
from lm_eval.models.huggingface.model import HFLM

MODEL = Path(__file__).parents[2] / "shared" / "models" / "stories260K"
LIMIT = 0.05


class ModelClock:
    """Adds up the processor time in calls of methods, nested ones once."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def watch(self, owner: Any, name: str) -> None:
        """Measures every call of a method."""
        inner = getattr(owner, name)

        @functools.wraps(inner)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start, self._depth = time.process_time(), self._depth + 1
            try:
                return inner(*args, **kwargs)
            finally:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.process_time() - start

        setattr(owner, name, timed)


def main() -> None:
    """Prints the times of each evaluation; fails if the second one spends too much."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default=str(MODEL))
    parser.add_argument("--tasks", default="demo")
    parser.add_argument("--limit", type=float, default=100)
    parser.add_argument("--evaluations", type=int, default=3)
    given = parser.parse_args()
    model = AutoModelForCausalLM.from_pretrained(given.model).train()
    tokenizer = AutoTokenizer.from_pretrained(given.model)
    clock, encoding = ModelClock(), ModelClock()
    for name in ("loglikelihood", "loglikelihood_rolling", "generate_until"):
        clock.watch(HFLM, name)
    for name in ("encode_all", "encode_pairs"):
        encoding.watch(RememberingEncoder, name)
    outside, whole = [], []
    tasks = None
    for number in range(given.evaluations):
        start, clock.seconds, encoding.seconds = time.process_time(), 0.0, 0.0
        tasks = tasks or LiveTasks(given.tasks, limit=given.limit)
        results = evaluate_live(model, tokenizer, tasks)
        whole.append(time.process_time() - start)
        outside.append(whole[-1] - clock.seconds + encoding.seconds)
        stages = {name: round(seconds, 3) for name, seconds in results["timings"].items()}
        print(
            f"evaluation {number + 1}: {whole[-1]:.2f} s of processor time, {outside[-1]:.2f} s of "
            f"it outside the model; stages {stages}"
        )
    share = outside[1] / whole[0]
    print(
        f"The second evaluation spends {share:.1%} of the first one's time outside the model "
        f"({outside[1] / outside[0]:.0%} of what the first one spends there)."
    )
    assert share < LIMIT, f"more than {LIMIT:.0%}"


if __name__ == "__main__":
    main()
