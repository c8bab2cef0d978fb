"""Checks that a sweep survives kills: 3 models × 4 tasks × 2 numbers of few-shot examples.

usage: python benchmarks/sweep.py [--kills N] [--limit N] [--seed N] [--stories DIR]

The models are the demo model, a copy of it with noised weights, and `stories260K`. The sweep is
killed ten times, each time a random moment after a random number of answers is stored, and started
again, then run to its end. Its results must equal those of an undisturbed one. Every answer must be
stored exactly once: one that was stored before a kill and asked again would be stored twice.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from safetensors.numpy import load_file, save_file

from lm_eval.models.demo.model import WEIGHTS
from lm_eval.sweeps.record import read_sweep

STORIES = Path(__file__).parents[2] / "shared" / "models" / "stories260K"
TASKS = ["demo_choice", "demo_pairs", "demo_lastword", "demo_stories"]
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


def noised_copy(folder: Path) -> Path:
    """Writes a copy of the demo model with noised weights to a folder, and returns it."""
    shutil.copytree(WEIGHTS, folder)
    generator = np.random.default_rng(5)
    weights = {
        name: (values + generator.normal(0, values.std(), values.shape)).astype(values.dtype)
        for name, values in load_file(folder / "model.safetensors").items()
    }
    save_file(weights, folder / "model.safetensors")
    return folder


def scores(folder: Path) -> dict[str, Any]:
    """Returns the scores of every run of a sweep."""
    return {run.name: results["results"] for run, results in read_sweep(folder).results()}


def answers(folder: Path) -> Counter[tuple[int, bytes]]:
    """Returns how often each answer of each model is stored."""
    store, found = folder / "answers.sqlite", Counter[tuple[int, bytes]]()
    if not store.exists():
        return found
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True, timeout=60)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'answers'").fetchone():
            return found  # it is being created
        for model, keys in connection.execute("SELECT model, keys FROM answers"):
            found.update((model, keys[i : i + 16]) for i in range(0, len(keys), 16))
    return found


def main() -> None:
    """Runs both sweeps and compares them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--limit", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stories", default=str(STORIES))
    given = parser.parse_args()
    drawn = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as root:
        folder = Path(root)
        content = {
            "limit": given.limit,
            "matrix": {
                "models": [
                    "demo",
                    {
                        "name": "noised",
                        "model": "demo",
                        "model_args": {"pretrained": str(noised_copy(folder / "noised"))},
                    },
                    {
                        "name": "stories260K",
                        "model": "hf",
                        "model_args": {"pretrained": given.stories, "device": "cpu"},
                    },
                ],
                "tasks": TASKS,
                "num_fewshot": [0, 2],
            },
        }
        file = folder / "sweep.yaml"
        file.write_text(yaml.safe_dump(content, sort_keys=False))
        command = [sys.executable, "-m", "lm_eval", "sweep", str(file), "--output_path"]

        def start(name: str) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*command, str(folder / name)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )

        began = time.monotonic()
        whole = start("whole")
        _, output = whole.communicate()
        assert whole.returncode == 0, output
        seconds = time.monotonic() - began
        expected = scores(folder / "whole")
        assert len(expected) == 24, len(expected)
        every = answers(folder / "whole").total()
        goals = sorted(drawn.randrange(every) for _ in range(given.kills))
        for number, goal in enumerate(goals):
            process = start("killed")
            while process.poll() is None and answers(folder / "killed").total() < goal:
                time.sleep(0.02)
            try:
                process.wait(drawn.uniform(0.0, 2.0))
            except subprocess.TimeoutExpired:
                process.send_signal(drawn.choice(SIGNALS))
            process.communicate()
            stored = answers(folder / "killed").total()
            print(f"kill {number + 1}: {stored} of {every} answers are stored", flush=True)
        last = start("killed")
        _, output = last.communicate()
        assert last.returncode == 0, output
        assert scores(folder / "killed") == expected
        found, complete = answers(folder / "killed"), answers(folder / "whole")
        assert set(found.values()) == {1}, Counter(found.values())
        assert len(found) == len(complete)
        record = json.loads((folder / "killed" / "sweep.json").read_text())
        assert {run["state"] for run in record["runs"]} == {"finished"}
        print(
            f"24 runs, {len(found)} answers: killed {given.kills} times, the results of an "
            f"undisturbed sweep ({seconds:.0f} s); every answer is stored once."
        )


if __name__ == "__main__":
    main()
