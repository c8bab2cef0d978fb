"""Checks that two `hf` workers that share one GPU give the scores of a run in one process.

Run it with `python benchmarks/workers_gpu.py` on a machine with a GPU, torch and transformers; it
needs no network. The model is the embedded one, as a transformers model in float32, and the tasks
are the embedded ones. Prints the largest difference of a score and the times, and exits with 1 if a
score differs by more than the rounding of float32 sums.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Mapping
from typing import Any

import lm_eval
from lm_eval.models.demo.model import WEIGHTS

TOLERANCE = 1e-4


def scores(device: str, limit: int, **executor: Any) -> Mapping[str, Any]:
    """Returns the scores of all tasks, by task and metric."""
    found = lm_eval.simple_evaluate(
        "hf",
        model_args={"pretrained": str(WEIGHTS), "dtype": "float32"},
        device=device,
        tasks=["demo"],
        limit=limit,
        log_samples=False,
        bootstrap_iters=0,
        **executor,
    )
    assert found is not None
    return {
        f"{task} {name}": value
        for task, of_task in found["results"].items()
        for name, value in of_task.items()
        if isinstance(value, float) and not math.isnan(value)
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", help="default: cuda:0 if there is a GPU")
    parser.add_argument("--limit", type=int, default=60, help="documents per task")
    given = parser.parse_args()
    import torch

    device = given.device or ("cuda:0" if torch.cuda.is_available() else "cpu")
    began = time.perf_counter()
    one = scores(device, given.limit)
    between = time.perf_counter()
    two = scores(device, given.limit, executor="processes", workers=2)
    ended = time.perf_counter()
    worst = max(abs(one[name] - two[name]) / max(abs(one[name]), 1e-9) for name in one)
    name = torch.cuda.get_device_name(0) if device.startswith("cuda") else device
    print(
        f"{name}: {len(one)} scores; largest relative difference {worst:.1e}; in one process "
        f"{between - began:.1f} s, two workers {ended - between:.1f} s, with their start"
    )
    return int(one.keys() != two.keys() or worst > TOLERANCE)


if __name__ == "__main__":
    sys.exit(main())
