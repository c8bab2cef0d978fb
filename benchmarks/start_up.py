"""Measures `import lm_eval` and `lm-eval --help`, compared with the published harness.

usage: python benchmarks/start_up.py [PUBLISHED_VENV]      (`make bench` creates both environments)
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS = 7
HERE = Path(__file__).resolve().parents[1]


def seconds(command: list[str]) -> float:
    """Returns the wall-clock time of a command."""
    start = time.perf_counter()
    subprocess.run(command, capture_output=True, check=True, cwd="/")
    return time.perf_counter() - start


def main() -> None:
    published = Path(sys.argv[1] if len(sys.argv) > 1 else HERE / ".venv" / "published").resolve()
    pythons = {"published": str(published / "bin" / "python"), "ours": sys.executable}
    work = {
        "import lm_eval": ["-c", "import lm_eval"],
        "lm-eval --help": ["-m", "lm_eval", "--help"],
    }
    for name, words in work.items():
        times: dict[str, list[float]] = {who: [] for who in pythons}
        for _ in range(ROUNDS):  # alternately, so that noise affects both alike
            for who, python in pythons.items():
                times[who].append(seconds([python, *words]))
        median = {who: statistics.median(values) for who, values in times.items()}
        print(
            f"{name:16} published {median['published']:.3f} s   ours {median['ours']:.3f} s   "
            f"{median['published'] / median['ours']:.1f} times faster"
        )


if __name__ == "__main__":
    main()
