"""Gives damaged inputs to the package: no traceback, no crash, nothing that takes over 10 s.

usage: python benchmarks/fuzz.py MODE [--count N] [--seed FIRST] [--seconds LIMIT] [--verbose]

Modes are the modules of `benchmarks/fuzzing/` that have `make` and `attempt`:

  tasks    folders of task files: scanned, listed, checked (as `validate --no_build`) and built

An input that takes too long is tried once more, because the machine may have been busy. Each seed
is one input, so a finding is repeated with `--seed N --count 1`. Prints how many inputs
had which outcome, and every finding; after Ctrl-C, those so far. The exit code is 1 if there are
findings.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

MODES = ("tasks",)
ROOT = Path(__file__).parents[1]


class Worker:
    """The process that tries inputs; it is started again after it was ended or crashed."""

    def __init__(self, mode: str, seconds: float) -> None:
        self._words = [sys.executable, "-m", "benchmarks.fuzzing.worker", mode]
        self._seconds = seconds
        self._process: subprocess.Popen[str] | None = None

    def attempt(self, seed: int) -> dict[str, str]:
        """Returns the outcome of a seed, or a finding: a traceback, a crash or a hang."""
        if self._process is None:
            self._process = self._start()
        process, started = self._process, time.monotonic()
        timer = threading.Timer(self._seconds, process.kill)
        timer.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(f"{seed}\n")
            process.stdin.flush()
            answer = process.stdout.readline()
        except OSError:
            answer = ""
        timer.cancel()
        if answer:
            found: dict[str, str] = json.loads(answer)
            return found
        self._process = None
        code = process.wait()
        if time.monotonic() - started >= self._seconds:
            return {"hang": f"took more than {self._seconds:g} s"}
        return {"crash": f"the process ended with code {code}"}

    def close(self) -> None:
        """Ends the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def _start(self) -> subprocess.Popen[str]:
        """Returns a new process, which has tried one input: imports take longer than any input."""
        offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "LMEVAL_LOG_LEVEL": "ERROR"}
        process = subprocess.Popen(
            self._words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=ROOT,
            env={**os.environ, **offline, "PYTHONPATH": str(ROOT)},
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("0\n")
        process.stdin.flush()
        process.stdout.readline()
        return process


def main() -> int:
    parser = argparse.ArgumentParser(description="Gives damaged inputs to the package.")
    parser.add_argument("mode", choices=MODES)
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--seconds", type=float, default=10.0, help="the limit for one input")
    parser.add_argument("--verbose", action="store_true", help="print the outcome of each seed")
    given = parser.parse_args()
    worker, outcomes, slowest = Worker(given.mode, given.seconds), Counter[str](), (0.0, 0)
    started = time.monotonic()
    try:
        for seed in range(given.seed, given.seed + given.count):
            before = time.monotonic()
            found = worker.attempt(seed)
            if "hang" in found:  # again in a new process: the machine may have been busy
                found = worker.attempt(seed)
            slowest = max(slowest, (time.monotonic() - before, seed))
            kind, text = next(iter(found.items()))
            outcomes[text if kind == "outcome" else kind] += 1
            if kind != "outcome":
                print(f"seed {seed}: {kind}: {text}", flush=True)
            elif given.verbose:
                print(f"seed {seed}: {text}", flush=True)
    except KeyboardInterrupt:
        print("interrupted")
    worker.close()
    findings = sum(outcomes[kind] for kind in ("traceback", "crash", "hang"))
    print(
        f"{outcomes.total()} inputs of the mode {given.mode} in {time.monotonic() - started:.0f} s:"
    )
    for outcome, count in outcomes.most_common():
        print(f"  {count:6}  {outcome}")
    print(f"slowest: seed {slowest[1]}, {slowest[0]:.1f} s. Findings: {findings}.")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
