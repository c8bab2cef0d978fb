"""Measures what judging programs costs, and checks that the canonical solutions pass.

usage: python benchmarks/sandbox.py [--data ../shared/data] [--workers N]

First a program that adds one to a number, judged 300 times by one worker, under each isolation that
this machine allows. Then, if the rows of HumanEval and MBPP are there, all their 1,138 canonical
solutions at the strongest isolation, by one worker per processor.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from lm_eval.sandbox import isolation, run
from lm_eval.sandbox.types import Limits
from lm_eval.sandbox.workers import Worker

HUMANEVAL = "openai/openai_humaneval/default/test.parquet"
MBPP = "google-research-datasets/mbpp/full"
ROUNDS = 300


def seconds_per_program(mechanisms: Sequence[str]) -> tuple[float, float]:
    """Returns the median wall time of one small program, and processor time per program."""
    worker = Worker(0, mechanisms, Limits())
    durations = []
    before = os.times()
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        worker.judge("def f(x):\n    return x + 1\n", "assert f(1) == 2\n")
        durations.append(time.perf_counter() - begin)
    worker.close()  # only now are the processor times of its processes known
    after = os.times()
    used = sum(after[:4]) - sum(before[:4])
    return statistics.median(durations), used / ROUNDS


def canonical_programs(data: Path) -> tuple[list[str], list[str], list[str]]:
    """Returns names, programs and tests of HumanEval and MBPP."""
    import pyarrow.parquet as parquet

    names, programs, tests = [], [], []
    for row in parquet.read_table(data / HUMANEVAL).to_pylist():
        names.append(row["task_id"])
        programs.append(row["prompt"] + row["canonical_solution"])
        tests.append(f"{row['test']}\ncheck({row['entry_point']})")
    for split in ("train", "validation", "test", "prompt"):
        for row in parquet.read_table(data / MBPP / f"{split}.parquet").to_pylist():
            names.append(f"MBPP/{row['task_id']}")
            programs.append(row["code"])
            tests.append("\n".join([row["test_setup_code"] or "", *row["test_list"]]))
    return names, programs, tests


def main() -> None:
    """Measures, and prints the figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--workers", type=int)
    args = parser.parse_args()
    levels = isolation().levels
    for mechanisms in ((), *((name,) for name in levels), levels):
        wall, processor = seconds_per_program(mechanisms)
        name = "+".join(mechanisms) or "limits"
        print(
            f"{name:28} {wall * 1000:6.1f} ms per program, of processor {processor * 1000:5.1f} ms"
        )
    if not (args.data / HUMANEVAL).is_file():
        print(f"no rows of HumanEval and MBPP in {args.data}")
        return
    names, programs, tests = canonical_programs(args.data)
    begin = time.perf_counter()
    verdicts = run(programs, tests, workers=args.workers)
    seconds = time.perf_counter() - begin
    failed = [name for name, verdict in zip(names, verdicts, strict=True) if not verdict.passed]
    slowest = max(zip(names, verdicts, strict=True), key=lambda pair: pair[1].seconds)
    print(f"{len(programs)} canonical solutions, {isolation().name}: {seconds:.1f} s")
    print(f"{len(programs) - len(failed)} passed; failed: {', '.join(failed) or 'none'}")
    print(f"the slowest was {slowest[0]}, {slowest[1].seconds:.2f} s")


if __name__ == "__main__":
    main()
