"""Measures what workers cost: speed-up, balance, answers per second and memory of the driver.

Run it with `python benchmarks/workers.py`; `--executor ray` measures Ray actors on this machine
instead of processes, `--requests N` the length of the streamed list (default: 5 million), and
`--only NAME` a single measurement: speedup, long-tail, driver or memory. Models sleep instead of
computing, so that the figures do not depend on the number of processors.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.config.run import RunConfig
from lm_eval.engine.workers.remote_model import RemoteLM
from lm_eval.engine.workers.scheduler import Scheduler
from lm_eval.models.create import create_model

BATCH = 32
BATCH_SECONDS = 0.05


class SleepingLM(LM):
    """Sleeps 50 ms for each batch of 32 requests."""

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        for _ in range(0, len(requests), BATCH):
            time.sleep(BATCH_SECONDS)
        return [(-1.0, False)] * len(requests)

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [-1.0] * len(requests)

    def generate_until(self, requests: list[Instance]) -> list[str]:
        """Sleeps as long as the request says: its context ends with a number of milliseconds."""
        found = []
        for request in requests:
            time.sleep(float(request.args[0].rpartition(" ")[2]) / 1000)
            found.append("x")
            self.cache_hook.add_partial("generate_until", request.args, "x")
        return found


class InstantLM(SleepingLM):
    """Answers at once."""

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-1.0, False)] * len(requests)


def scored(count: int) -> Iterator[Instance]:
    """Yields requests to score, with contexts of about 200 characters and two choices each."""
    for i in range(count):
        context = f"Question {i // 2:09}: {'some words of a question ' * 7}"
        yield Instance("loglikelihood", {}, (context, f" choice {i % 2}"), i % 2, ("t", i // 2, 1))


def connected(executor: str, model: str, workers: int, batch: int | None = None) -> RemoteLM:
    """Returns a model whose workers are all ready."""
    run = RunConfig(
        model=f"{Path(__file__)}:{model}",
        executor=executor,
        workers=workers,
        cpus_per_worker=0.01 if executor == "ray" else None,
        batch_size=batch,
    )
    lm = create_model(run)
    assert isinstance(lm, RemoteLM)
    crew = lm.executor.crew
    while len(crew.ready) < workers:
        list(crew.events(0.1))
    return lm


def seconds_of(lm: RemoteLM, kind: str, requests: Any, batch: int | None = None) -> float:
    """Returns how long the workers take for requests; checks that all are answered."""
    answered = 0

    def count(positions: Sequence[int], outcomes: Sequence[Any]) -> None:
        nonlocal answered
        answered += len(positions)

    began = time.perf_counter()
    Scheduler(lm.executor.crew, batch).run(kind, requests, count)
    took = time.perf_counter() - began
    if hasattr(requests, "__len__"):
        assert answered == len(requests), answered
    return took


def speedup(executor: str) -> None:
    """Prints the speed-up of 4 workers over one."""
    requests = list(scored(200 * BATCH))
    took = {}
    for workers in (1, 4):
        lm = connected(executor, "SleepingLM", workers, BATCH)
        took[workers] = seconds_of(lm, "loglikelihood", requests, BATCH)
        lm.close()
    print(
        f"{len(requests)} requests, 50 ms per batch of {BATCH}: 1 worker {took[1]:.2f} s, 4 "
        f"workers {took[4]:.2f} s, {took[1] / took[4]:.2f} times as fast"
    )


def long_tail(executor: str) -> None:
    """Prints how near the division of requests of very different lengths is to the ideal."""
    draw = random.Random(1)
    lengths = [min(5 * draw.paretovariate(1.2), 1000.0) for _ in range(3000)]
    settings = {"until": []}
    requests = [
        Instance("generate_until", {}, (f"prompt {i} {length:.3f}", settings), 0, ("t", i, 1))
        for i, length in enumerate(lengths)
    ]
    ideal = max(sum(lengths) / 4, max(lengths)) / 1000
    lm = connected(executor, "SleepingLM", 4)
    took = seconds_of(lm, "generate_until", requests)
    lm.close()
    print(
        f"{len(requests)} requests of {min(lengths):.0f} to {max(lengths):.0f} ms (Pareto) on 4 "
        f"workers: {took:.2f} s; ideal {ideal:.2f} s; {100 * ideal / took:.0f} % of it"
    )


def driver(executor: str) -> None:
    """Prints how many answers per second the driver can handle."""
    requests = list(scored(200_000))
    lm = connected(executor, "InstantLM", 2)
    cpu = time.process_time()
    took = seconds_of(lm, "loglikelihood", requests)
    cpu = time.process_time() - cpu
    lm.close()
    print(
        f"{len(requests)} answers of an instant model, 2 workers: {len(requests) / took:,.0f} per "
        f"second; {1e6 * cpu / len(requests):.1f} µs of the driver's processor time each, so at "
        f"most {len(requests) / cpu:,.0f} per second"
    )


def memory(executor: str, count: int) -> None:
    """Prints the memory of the driver while it reads a long list in windows."""
    lm = connected(executor, "InstantLM", 2)
    marks: list[tuple[int, float]] = []
    step = max(1, count // 10)

    def watched() -> Iterator[Instance]:
        for i, request in enumerate(scored(count)):
            if i % step == 0:
                marks.append((i, _resident()))
            yield request

    took = seconds_of(lm, "loglikelihood", watched())
    lm.close()
    marks.append((count, _resident()))
    shown = ", ".join(f"{i / 1e6:.1f} M: {size:.0f}" for i, size in marks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{count} requests in {took:.0f} s; MiB in use after {shown}; at most {peak:.0f} MiB")


def _resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", choices=("processes", "ray"), default="processes")
    parser.add_argument("--requests", type=int, default=5_000_000)
    parser.add_argument("--only", choices=("speedup", "long-tail", "driver", "memory"))
    given = parser.parse_args()
    measurements = {
        "speedup": lambda: speedup(given.executor),
        "long-tail": lambda: long_tail(given.executor),
        "driver": lambda: driver(given.executor),
        "memory": lambda: memory(given.executor, given.requests),
    }
    for name, measure in measurements.items():
        if given.only in (None, name):
            measure()
            sys.stdout.flush()


if __name__ == "__main__":
    main()
