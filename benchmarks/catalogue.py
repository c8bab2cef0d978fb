"""Measures how long indexing a task folder takes, compared with the published harness.

usage: python benchmarks/catalogue.py [PUBLISHED_VENV]      (`make bench` creates both environments)

Both harnesses index the published wheel's task folder (13,986 YAML files), alternately. Ours is
measured without a stored index (cold) and with one (warm). The whole command `lm-eval ls tasks` is
measured too.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 3
HERE = Path(__file__).resolve().parents[1]
TIMED = """
import logging, sys, time
logging.disable(logging.ERROR)
from lm_eval.tasks import TaskManager
TaskManager
start = time.perf_counter()
manager = TaskManager(include_path={tasks!r}, include_defaults=False)
print(time.perf_counter() - start, len(manager.all_tasks))
"""


def run(command: list[str], cache: str) -> tuple[float, str]:
    """Runs a command with an index cache folder; returns its seconds and its output."""
    start = time.perf_counter()
    environment = {**os.environ, "LMEVAL_CACHE_DIR": cache, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd="/", env=environment
    )
    return time.perf_counter() - start, done.stdout


def main() -> None:
    published = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / ".venv" / "published").resolve()
    (tasks,) = published.glob("lib/python*/site-packages/lm_eval/tasks")
    code = TIMED.format(tasks=str(tasks))
    times: dict[str, list[float]] = {"published": [], "cold": [], "warm": [], "ls tasks": []}
    names = set()
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as cache:
            for who, python in (
                ("published", str(published / "bin" / "python")),
                ("cold", sys.executable),
                ("warm", sys.executable),
            ):
                _, out = run([python, "-c", code], cache)
                seconds, count = out.split()
                times[who].append(float(seconds))
                names.add(count)
            listing = [sys.executable, "-m", "lm_eval", "ls", "tasks", "--include_path", str(tasks)]
            run(listing, cache)
            times["ls tasks"].append(run(listing, cache)[0])
    median = {who: statistics.median(values) for who, values in times.items()}
    print(f"task names found (one number if all agree): {', '.join(sorted(names))}")
    print(f"TaskManager() published {median['published']:.2f} s")
    for who in ("cold", "warm"):
        ratio = median["published"] / median[who]
        print(f"TaskManager() ours, {who} {median[who]:.3f} s, {ratio:.1f} times faster")
    print(f"lm-eval ls tasks, warm, whole command {median['ls tasks']:.2f} s")


if __name__ == "__main__":
    main()
