"""Measures reading 14,000 documents, compared with `datasets`, which the published harness uses.

usage: python benchmarks/documents.py [ROUNDS]

Each round runs in a new process: it imports the library, opens the file and iterates over all
documents once. Ours also computes the fingerprint. Prints the median times and their ratio.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WRITE = """
import datasets, sys
row = lambda i: {"question": f"Question {i}? " * 20, "choices": [f"answer {i} {c}" for c in "abcd"],
                 "answer": i % 4, "subject": "things"}
datasets.Dataset.from_list([row(i) for i in range(14_000)]).to_parquet(sys.argv[1])
"""
THEIRS = """
import sys, time; started = time.perf_counter()
import datasets
for doc in datasets.Dataset.from_parquet(sys.argv[1], cache_dir=sys.argv[2]): pass
print(time.perf_counter() - started)
"""
OURS = """
import sys, time; started = time.perf_counter()
from pathlib import Path
from lm_eval.data.fingerprint import fingerprint
from lm_eval.data.parquet import read_parquet
rows = read_parquet([Path(sys.argv[1])])
for doc in rows: pass
fingerprint(rows)
print(time.perf_counter() - started)
"""


def run(code: str, *arguments: str) -> str:
    """Runs Python code in a new process and returns what it prints."""
    words = [sys.executable, "-c", code, *arguments]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "test.parquet")
        run(WRITE, file)
        times: dict[str, list[float]] = {"datasets": [], "lm_eval.data": []}
        for number in range(rounds):
            cache = str(Path(folder) / f"cache{number}")
            times["datasets"].append(float(run(THEIRS, file, cache)))
            times["lm_eval.data"].append(float(run(OURS, file)))
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, seconds in medians.items():
        print(f"{name:14} {seconds:6.2f} s")
    print(f"ratio          {medians['datasets'] / medians['lm_eval.data']:6.1f}")


if __name__ == "__main__":
    main()
