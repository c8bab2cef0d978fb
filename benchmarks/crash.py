"""Checks that runs survive kills, a full disk and a second process on the same folder.

usage: python benchmarks/crash.py [--documents N] [--kills N] [--seed N]

Sends 50,000 requests to a deterministic model, which answers in batches of 64 and logs each request
before it answers. First, the run is ended by SIGKILL, SIGTERM or SIGHUP at random moments and
restarted each time.
Then it runs on a disk that is too small for its answers and is enlarged later. Then two processes
run into the same folder. Each time the scores must equal those of an undisturbed run, the store
must contain every answer exactly once, and only requests of an interrupted batch may be sent twice.
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
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGHUP)
MODEL = """
import hashlib, os, sys, time
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

request_log = os.open(os.environ["NOTES"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

@register_model("steady")
class Steady(LM):
    def loglikelihood(self, requests, **kwargs):
        given = []
        for start in range(0, len(requests), 64):
            batch = [request.args for request in requests[start : start + 64]]
            texts = ["|".join(received).encode() for received in batch]
            sums = [int(hashlib.md5(text).hexdigest()[:16], 16) for text in texts]
            os.write(request_log, (" ".join(map(str, sums)) + "\\n").encode())
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
    """One evaluation: its output folder, and a log of the requests that the model received."""

    def __init__(self, tasks: Path, out: Path, request_log: Path) -> None:
        self.tasks, self.out, self.request_log = tasks, out, request_log

    def start(self) -> subprocess.Popen[str]:
        """Starts the evaluation in a new process."""
        words = ["run", "--model", "steady", "--tasks", "overhead", "--include_path"]
        return subprocess.Popen(
            [sys.executable, "-c", MODEL, *words, str(self.tasks), "--output_path", str(self.out)],
            env={**os.environ, "NOTES": str(self.request_log)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )

    def finish(self) -> None:
        """Runs the evaluation to its end; fails if it fails."""
        process = self.start()
        _, output = process.communicate()
        assert process.returncode == 0, output

    def scores(self) -> Any:
        """Returns the scores in the newest results file."""
        return json.loads(max(self.out.rglob("results_2*.json")).read_text())["results"]

    def received(self) -> Counter[str]:
        """Returns how often the model received each request."""
        return (
            Counter(self.request_log.read_text().split())
            if self.request_log.exists()
            else Counter()
        )

    def requests_received(self) -> float:
        """Returns about how many requests the model has received, from the size of the log."""
        return self.request_log.stat().st_size / 20.4 if self.request_log.exists() else 0.0

    def check(self, expected: Any, requests: int, stops: int) -> str:
        """Asserts that results and store are complete; returns a summary.

        Args:
            expected: the scores of an undisturbed run.
            requests: the number of different requests.
            stops: how often the run was interrupted; each time one batch may be sent again.
        """
        assert self.scores() == expected, (self.scores(), expected)
        for file in self.out.rglob("*.json"):
            json.loads(file.read_text())
        (store,) = self.out.rglob("answers.sqlite")
        with closing(sqlite3.connect(store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            packed = b"".join(k for (k,) in connection.execute("SELECT keys FROM answers"))
        keys = [packed[i : i + 16] for i in range(0, len(packed), 16)]
        assert len(keys) == len(set(keys)) == requests, (len(keys), len(set(keys)), requests)
        received = self.received()
        assert len(received) == requests
        again = sum(received.values()) - requests
        assert again <= stops * BATCH, (again, stops)
        left = [p.name for p in self.out.rglob(".*")]
        return (
            f"{again} of {requests} requests sent again (at most {stops} x {BATCH} allowed), "
            f"temporary files left: {left}"
        )


def killed(trial: Trial, kills: int, requests: int, draw: random.Random) -> int:
    """Starts and ends the run up to `kills` times, with each of `SIGNALS` in turn.

    Returns how often it was ended.

    One kill in five comes within two seconds of the start, mostly before the first request; the
    others come while the model answers.
    """
    done = 0
    while done < kills:
        early = draw.random() < 0.2
        wait = draw.uniform(0.0, 2.0)
        target = trial.requests_received() + (
            0 if early else draw.uniform(0.0, 1.5) * requests / kills
        )
        process = trial.start()
        begun = time.monotonic()
        while process.poll() is None:
            at_work = trial.requests_received() > target
            if (time.monotonic() - begun > wait) if early else at_work:
                process.send_signal(SIGNALS[done % len(SIGNALS)])
                break
            time.sleep(draw.uniform(0.001, 0.02))
        if process.wait() == 0:
            break  # the run ended before it could be killed
        done += 1
        ended = signal.Signals(-process.returncode).name if process.returncode < 0 else "exit"
        print(
            f"  {ended} {done}: {sum(trial.received().values())} requests sent so far", flush=True
        )
    return done


def full_disk(trial: Trial, disk: Path, requests: int) -> bool:
    """Runs on a disk that is too small for the answer index, then for the answers, then large.

    Returns False if a small disk cannot be mounted here (this needs root).
    """
    small = 28 * requests // 1024  # kilobytes: the size of the answer index
    mount = ["mount", "-t", "tmpfs", "-o", f"size={small // 2}k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        return False
    for size in (small + 1000, 100 * small):
        process = trial.start()
        _, output = process.communicate()
        assert process.returncode == 2, (process.returncode, output)
        assert "disk is full" in output or "No space left" in output, output
        print(
            f"  after {trial.requests_received():.0f} requests: {output.strip().splitlines()[-1]}"
        )
        subprocess.run(["mount", "-o", f"remount,size={size}k", str(disk)], check=True)
    trial.finish()
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=12_500, help="four requests each")
    parser.add_argument("--kills", type=int, default=20, help="how often to kill the run")
    parser.add_argument("--seed", type=int, default=1, help="seed of the moments of the kills")
    given = parser.parse_args()
    requests = 4 * given.documents
    draw = random.Random(given.seed)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "tasks").mkdir()
        write_task(folder / "tasks", given.documents)

        def trial(name: str) -> Trial:
            (folder / name).mkdir()
            return Trial(folder / "tasks", folder / name, folder / f"{name}.request_log")

        undisturbed = trial("undisturbed")
        begun = time.time()
        undisturbed.finish()
        usual = time.time() - begun
        scores = undisturbed.scores()
        print(f"undisturbed: {usual:.1f} s; {undisturbed.check(scores, requests, 0)}")

        disturbed = trial("killed")
        print(f"killed {given.kills} times:")
        kills = killed(disturbed, given.kills, requests, draw)
        disturbed.finish()
        print(f"  scores identical; {disturbed.check(scores, requests, kills)}")
        assert kills == given.kills, (
            f"only {kills} kills: the run ended before; pass more --documents"
        )

        print("a full disk:")
        disk_full = trial("disk_full")
        try:
            if full_disk(disk_full, disk_full.out, requests):
                print(f"  scores identical; {disk_full.check(scores, requests, 2)}")
            else:
                print("  skipped: cannot mount a small disk here (this needs root)")
        finally:
            subprocess.run(["umount", str(disk_full.out)], capture_output=True, check=False)

        print("two processes on one folder:")
        concurrent = trial("concurrent")
        pair = [concurrent.start(), concurrent.start()]
        output = [process.communicate()[1] for process in pair]
        codes = sorted(process.returncode for process in pair)
        refused = next(
            text for text, process in zip(output, pair, strict=True) if process.returncode
        )
        assert codes == [0, 2], output
        assert "is using this folder" in refused, refused
        print(f"  one was refused: {refused.strip().splitlines()[-1]}")
        print(f"  scores identical; {concurrent.check(scores, requests, 0)}")


if __name__ == "__main__":
    main()
