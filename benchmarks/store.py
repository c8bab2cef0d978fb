"""Measures what storing answers costs, and how fast stored answers are looked up.

usage: python benchmarks/store.py [--documents N] [--rounds N] [--processor]

Evaluates the dummy model on 14,000 documents with four choices, as in overhead.py, with an output
folder: answers, answer index, results and samples are written. The time spent in the functions that
compute keys and store or look up answers is compared with the time of the whole run. Then the same
run is repeated, with every answer in the store. The round with the smallest share counts, since
other load on the machine can only add time. `--processor` measures CPU time instead of wall-clock
time, for busy machines.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from overhead import write_task

from lm_eval.config.run import RunConfig
from lm_eval.engine import answer
from lm_eval.engine.store import AnswerStore
from lm_eval.evaluator import run_evaluation
from lm_eval.runs import run as run_module
from lm_eval.runs.folder import RunFolder

#: The functions that a run calls only because it has a store. (Request digests are not among them:
#: every run computes them for the hash of a task's prompts.)
PARTS: list[tuple[Any, str]] = [
    (run_module, "build_answer_index"),
    (RunFolder, "_write_index"),
    (answer, "request_keys"),
    (answer._StoreWriter, "store_unreported"),  # the dummy model reports nothing while it works
    (AnswerStore, "__init__"),
    (AnswerStore, "find"),
    (AnswerStore, "close"),
]


CLOCK = time.perf_counter


@contextlib.contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Measures the functions in `PARTS` during the `with` block; yields seconds by function."""
    spent: dict[str, float] = {}
    before = [(owner, name, getattr(owner, name)) for owner, name in PARTS]

    def watch(key: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            start = CLOCK()
            try:
                return function(*args, **kwargs)
            finally:
                spent[key] = spent.get(key, 0.0) + CLOCK() - start

        return call

    for owner, name, function in before:
        setattr(owner, name, watch(f"{getattr(owner, '__name__', owner)}.{name}", function))
    try:
        yield spent
    finally:
        for owner, name, function in before:
            setattr(owner, name, function)


def run(folder: Path, out: Path) -> tuple[float, dict[str, float], dict[str, float]]:
    """Evaluates once; returns the seconds of the run, of each store function, of each stage."""
    settings = RunConfig(
        model="dummy",
        tasks=["overhead"],
        include_path=[str(folder)],
        output_path=str(out),
        log_samples=True,
    )
    with timed() as spent, contextlib.redirect_stderr(io.StringIO()):
        start = CLOCK()
        results = run_evaluation(settings)
        took = CLOCK() - start
    assert results is not None
    return took, spent, results["timings"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=14_000, help="documents of the task")
    parser.add_argument("--rounds", type=int, default=3, help="repetitions; the best one counts")
    parser.add_argument("--processor", action="store_true", help="measure CPU time")
    given = parser.parse_args()
    if given.processor:
        global CLOCK
        CLOCK = time.process_time
    requests = 4 * given.documents
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_task(folder, given.documents)
        pairs = [
            (run(folder, folder / f"out{i}"), run(folder, folder / f"out{i}"))
            for i in range(given.rounds)
        ]
    whole, spent, _ = min((first for first, _ in pairs), key=lambda r: sum(r[1].values()) / r[0])
    store = sum(spent.values())
    print(f"{requests} requests answered and stored: {whole:.2f} s, of which store: {store:.3f} s")
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {name:32} {1000 * seconds:7.1f} ms")
    print(f"  {100 * store / whole:.2f} % of the run (the goal is at most 3 %)")
    whole, spent, stages = min((again for _, again in pairs), key=lambda r: sum(r[1].values()))
    found = sum(seconds for name, seconds in spent.items() if "places" not in name)
    print(f"all of them looked up: {found:.3f} s, {requests / found:,.0f} answers/s")
    by_stage = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items())
    print(f"  the run took {whole:.2f} s: {by_stage}")


if __name__ == "__main__":
    main()
