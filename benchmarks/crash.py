"""Runs that are killed, starved of disk or doubled end as if nothing had happened.

usage: python benchmarks/crash.py [--documents N] [--kills N] [--seed N]

50,000 requests to a model that answers batches of 64 by a function of the request alone, and notes
every request before it answers. The run is killed (`kill -9`) at random moments and given again
each time; then on a disk too small for its answers, which is enlarged; then by two processes at
once. Each time the scores must be those of an undisturbed run, every answer must be in the store
once, and nothing may have been asked twice but what was in flight.
"""

from __future__ import annotations

import argparse
import json
import os
import random
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

from overhead import write_task

BATCH = 64
MODEL = """
import hashlib, os, sys, time
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

notes = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@register_model("steady")
class Steady(LM):
    def loglikelihood(self, requests, **kwargs):
        given = []
        for start in range(0, len(requests), 64):
            batch = [request.args for request in requests[start : start + 64]]
            texts = ["|".join(asked).encode() for asked in batch]
            sums = [int(hashlib.md5(text).hexdigest()[:16], 16) for text in texts]
            os.write(notes, (" ".join(map(str, sums)) + "\\n").encode())
            time.sleep(0.008)
            answers = [(-value / 2**64, value % 7 == 0) for value in sums]
            self.cache_hook.add_batch("loglikelihood", batch, answers)
            given += answers
        return given
    def loglikelihood_rolling(self, requests, **kwargs): raise NotImplementedError
    def generate_until(self, requests, **kwargs): raise NotImplementedError

from lm_eval.cli import main
sys.exit(main(sys.argv[1:]))
"""


class Trial:
    """A folder to run into, and notes of what the model was asked meanwhile."""

    def __init__(self, tasks: Path, out: Path, notes: Path) -> None:
        self.tasks, self.out, self.notes = tasks, out, notes

    def start(self) -> subprocess.Popen[str]:
        words = ["run", "--model", "steady", "--tasks", "overhead", "--include_path"]
        return subprocess.Popen(
            [sys.executable, "-c", MODEL, *words, str(self.tasks), "--output_path", str(self.out)],
            env={**os.environ, "NOTES": str(self.notes)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        process = self.start()
        _, said = process.communicate()
        assert process.returncode == 0, said

    def rows(self) -> Any:
        return json.loads(max(self.out.rglob("results_2*.json")).read_text())["results"]

    def asked(self) -> Counter[str]:
        return Counter(self.notes.read_text().split()) if self.notes.exists() else Counter()

    def noted(self) -> float:
        """About how many requests have been asked, without reading them all."""
        return self.notes.stat().st_size / 20.4 if self.notes.exists() else 0.0

    def check(self, undisturbed: Any, requests: int, stops: int) -> str:
        """That all is well, and how often something was asked again."""
        assert self.rows() == undisturbed, (self.rows(), undisturbed)
        for file in self.out.rglob("*.json"):
            json.loads(file.read_text())
        (store,) = self.out.rglob("answers.sqlite")
        with closing(sqlite3.connect(store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            packed = b"".join(k for (k,) in connection.execute("SELECT keys FROM answers"))
        keys = [packed[i : i + 16] for i in range(0, len(packed), 16)]
        assert len(keys) == len(set(keys)) == requests, (len(keys), len(set(keys)), requests)
        asked = self.asked()
        assert len(asked) == requests
        again = sum(asked.values()) - requests
        assert again <= stops * BATCH, (again, stops)
        left = [p.name for p in self.out.rglob(".*")]
        return f"{again} of {requests} asked again (at most {stops} x {BATCH}), left over: {left}"


def killed(trial: Trial, kills: int, requests: int, draw: random.Random) -> int:
    """Start and kill, over and over: now and then before anything is asked, mostly while the model
    is at work. How often it was killed.
    """
    done = 0
    while done < kills:
        early = draw.random() < 0.2
        wait = draw.uniform(0.0, 2.0)
        target = trial.noted() + (0 if early else draw.uniform(0.0, 1.5) * requests / kills)
        process = trial.start()
        begun = time.monotonic()
        while process.poll() is None:
            at_work = trial.noted() > target
            if (time.monotonic() - begun > wait) if early else at_work:
                process.send_signal(signal.SIGKILL)
                break
            time.sleep(draw.uniform(0.001, 0.02))
        if process.wait() == 0:
            break  # it came to its end first
        done += 1
        print(f"  kill {done}: {sum(trial.asked().values())} requests asked so far", flush=True)
    return done


def full_disk(trial: Trial, disk: Path, requests: int) -> bool:
    """A run on a disk too small for its plan, then for its answers; False if there can be none."""
    small = 28 * requests // 1024  # kilobytes: what the plan takes
    mount = ["mount", "-t", "tmpfs", "-o", f"size={small // 2}k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return False
    for size in (small + 1000, 100 * small):
        process = trial.start()
        _, said = process.communicate()
        assert process.returncode == 2, (process.returncode, said)
        assert "disk is full" in said or "No space left" in said, said
        print(f"  said, {trial.noted():.0f} asked: {said.strip().splitlines()[-1]}")
        subprocess.run(["mount", "-o", f"remount,size={size}k", str(disk)], check=True)
    trial.finish()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=12_500)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    requests = 4 * given.documents
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "tasks").mkdir()
        write_task(folder / "tasks", given.documents)

        def trial(name: str) -> Trial:
            (folder / name).mkdir()
            return Trial(folder / "tasks", folder / name, folder / f"{name}.notes")

        calm = trial("calm")
        begun = time.time()
        calm.finish()
        usual = time.time() - begun
        rows = calm.rows()
        print(f"undisturbed: {usual:.1f} s; {calm.check(rows, requests, 0)}")

        disturbed = trial("killed")
        print(f"killed {given.kills} times:")
        kills = killed(disturbed, given.kills, requests, draw)
        disturbed.finish()
        print(f"  scores identical; {disturbed.check(rows, requests, kills)}")
        assert kills == given.kills, f"only {kills} kills: the run had come to its end"

        print("a full disk:")
        starved = trial("starved")
        try:
            if full_disk(starved, starved.out, requests):
                print(f"  scores identical; {starved.check(rows, requests, 2)}")
            else:
                print("  skipped: this system lets nobody mount a small disk here")
        finally:
            subprocess.run(["umount", str(starved.out)], capture_output=True, check=False)

        print("two processes on one folder:")
        doubled = trial("doubled")
        pair = [doubled.start(), doubled.start()]
        said = [process.communicate()[1] for process in pair]
        codes = sorted(process.returncode for process in pair)
        refused = next(text for text, process in zip(said, pair, strict=True) if process.returncode)
        assert codes == [0, 2], said
        assert "is at work on it" in refused, refused
        print(f"  one was refused: {refused.strip().splitlines()[-1]}")
        print(f"  scores identical; {doubled.check(rows, requests, 0)}")


if __name__ == "__main__":
    main()
