"""What keeping answers costs, and how fast they are found again.

usage: python benchmarks/store.py [--documents N] [--rounds N] [--processor]

The dummy model on 14,000 documents with four choices, as in overhead.py, into a folder: answers,
plan, results and samples are written. Time inside the functions that make keys and keep or find
answers is held against that of the whole run; then the same run again, with every answer there.
The round with the least share counts, since whatever else the machine does only adds;
`--processor` counts processor seconds, for machines that do much else.
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

#: Everything a run does for its store and would not do without one. (Digests are made in any run:
#: the hash of a task's prompts in its results is made of them.)
PARTS: list[tuple[Any, str]] = [
    (run_module, "places_of"),
    (RunFolder, "_write_index"),
    (answer, "request_keys"),
    (answer._Keeper, "settle"),  # the dummy model reports nothing while it works
    (AnswerStore, "__init__"),
    (AnswerStore, "find"),
    (AnswerStore, "close"),
]


CLOCK = time.perf_counter


@contextlib.contextmanager
def timed() -> Iterator[dict[str, float]]:
    """Seconds by function while this lasts."""
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
    """One run: its seconds, those spent on the store, and those of its stages."""
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
    parser.add_argument("--documents", type=int, default=14_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processor", action="store_true", help="count processor seconds")
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
    print(
        f"{requests} requests asked and kept: {whole:.2f} s, of which for the store {store:.3f} s:"
    )
    for name, seconds in sorted(spent.items(), key=lambda item: -item[1]):
        print(f"  {name:32} {1000 * seconds:7.1f} ms")
    print(f"  {100 * store / whole:.2f} % of the run (at most 3 %)")
    whole, spent, stages = min((again for _, again in pairs), key=lambda r: sum(r[1].values()))
    found = sum(seconds for name, seconds in spent.items() if "places" not in name)
    print(f"all of them found again: {found:.3f} s, {requests / found:,.0f} answers/s")
    told = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in stages.items())
    print(f"  the run took {whole:.2f} s: {told}")


if __name__ == "__main__":
    main()
