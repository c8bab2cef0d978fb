"""Damages answer stores, run folders and sample logs, and checks that no command fails silently.

usage: python benchmarks/fuzz_runs.py [--stores N] [--folders N] [--seed N]

Each trial damages one file of a small finished run and runs `score`, `resume` or `reproduce` on it
(`fuzzing/runs.py`). No command may raise, print a traceback, take longer than 10 seconds, or report
other scores without a warning. Prints the counts, and the first failures.
"""

from __future__ import annotations

import argparse
import json
import sys

from fuzzing.runs import fuzz, report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stores", type=int, default=2000, help="damaged answer stores")
    parser.add_argument("--folders", type=int, default=2000, help="damaged other files of runs")
    parser.add_argument("--seed", type=int, default=1, help="seed of the damage")
    given = parser.parse_args()
    failed = 0
    for kind, count in (("stores", given.stores), ("folders", given.folders)):
        found = fuzz(kind, count, given.seed)
        print(json.dumps(report(kind, found)), flush=True)
        for failure in found.failures[:10]:
            print(f"  {failure}")
        failed += len(found.failures)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
