"""Speed of contamination scans: index, text, JSON lines, memory, and resuming after kill -9.

    python benchmarks/contamination.py generate DIR --gigabytes 2      # a corpus to scan
    python benchmarks/contamination.py scan DIR [--data_dir MIRROR]    # rates, cores, memory
    python benchmarks/contamination.py index --data_dir MIRROR         # all tasks of a mirror
    python benchmarks/contamination.py kill DIR                        # ten times kill -9

The corpus is generated from words with the frequencies of natural text, with punctuation, upper
case and line breaks, and with some documents of the demo tasks in it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
COMMAND = [sys.executable, "-m", "lm_eval", "contamination", "scan"]
#: Words of generated text that are drawn at a time.
WORDS = 200_000


def vocabulary(rng: random.Random, size: int = 50_000) -> list[str]:
    """Returns words with the lengths of English ones: frequent words are short."""
    letters = "etaoinshrdlcumwfgypbvk"
    words = []
    for rank in range(size):
        mean = 2.5 + 0.55 * np.log2(rank + 1)
        length = max(1, round(rng.gauss(mean, 1.5)))
        words.append("".join(rng.choices(letters, k=length)))
    return words


def paragraphs(seed: int, size: int):
    """Yields about `size` bytes of text, one paragraph at a time."""
    words = np.array(vocabulary(random.Random(0)), dtype=object)
    weights = 1 / np.arange(1, len(words) + 1)
    bounds = np.cumsum(weights / weights.sum())
    rng = np.random.default_rng(seed)
    done = 0
    while done < size:
        drawn = words[np.searchsorted(bounds, rng.random(WORDS)).clip(max=len(words) - 1)]
        lengths = rng.integers(6, 28, WORDS // 6)
        at = 0
        sentences = []
        for length in lengths:
            if at + length > WORDS:
                break
            sentence = " ".join(drawn[at : at + length])
            comma = sentence.find(" ", len(sentence) // 2)
            sentence = sentence[:comma] + "," + sentence[comma:]
            sentences.append(sentence[0].upper() + sentence[1:] + ".")
            at += length
        for first in range(0, len(sentences), 5):
            text = " ".join(sentences[first : first + 5])
            done += len(text) + 2
            yield text


def demo_texts() -> list[str]:
    """Returns the texts of some demo documents, to be planted."""
    path = ROOT / "lm_eval" / "tasks" / "demo" / "data" / "stories_test.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["text"] for line in lines]


def generate(folder: Path, gigabytes: float) -> None:
    """Writes plain text in one file, and a tenth of it as JSON lines."""
    folder.mkdir(parents=True, exist_ok=True)
    size, planted = int(gigabytes * 1e9), demo_texts()
    block = list(paragraphs(1, min(size, 200_000_000)))
    rng = random.Random(2)
    done = 0
    with (folder / "corpus.txt").open("w", encoding="utf-8") as file:
        while done < size:
            rng.shuffle(block)
            for text in block:
                if rng.random() < 1e-5:
                    done += file.write(rng.choice(planted) + "\n\n")
                done += file.write(text + "\n\n")
                if done >= size:
                    break
    with (folder / "corpus.jsonl").open("w", encoding="utf-8") as file:
        done = 0
        for number in range(0, len(block), 4):
            record = {"text": "\n\n".join(block[number : number + 4]), "meta": {"id": number}}
            done += file.write(json.dumps(record) + "\n")
            if done > size / 10:
                break
    print(f"{folder}: {size / 1e9:.1f} GB of text, {done / 1e9:.2f} GB of JSON lines")


def run(words: list[str], environment: dict[str, str] | None = None) -> dict[str, float]:
    """Runs a scan; returns seconds, CPU seconds and the rate that it reports."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [*COMMAND, *words], capture_output=True, text=True, check=False, env=environment
    )
    seconds = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        sys.exit(done.stderr)
    found = re.search(r"scanned in ([\d.]+) s \(([\d.]+) MB/s\)", done.stderr)
    return {
        "seconds": seconds,
        "cpu": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "scan": float(found[1]) if found else 0.0,
        "rate": float(found[2]) if found else 0.0,
        "memory": after.ru_maxrss / 1e3,
    }


def scan(folder: Path, tasks: list[str], data_dir: str | None) -> None:
    """Prints the rates of one and of two processes."""
    more = ["--data_dir", data_dir] if data_dir else []
    with tempfile.TemporaryDirectory() as scratch:
        for name in ("corpus.txt", "corpus.jsonl"):
            for workers in (1, 2):
                output = str(Path(scratch) / f"{name}.{workers}")
                words = [str(folder / name), "--tasks", *tasks, "-o", output, *more]
                took = run([*words, "--workers", str(workers)])
                print(
                    f"{name}, {workers} process{'es' if workers > 1 else ''}: "
                    f"{took['rate']:.1f} MB/s, {took['rate'] / workers:.1f} MB/s per process; "
                    f"scan {took['scan']:.1f} s of {took['seconds']:.1f} s; "
                    f"CPU {took['cpu']:.1f} s; largest process {took['memory']:.0f} MB",
                    flush=True,
                )


def index(data_dir: str) -> None:
    """Prints how long the index of all tasks in a mirror takes."""
    sys.path.insert(0, str(ROOT))
    from lm_eval.contamination.scan import Search
    from lm_eval.data import mirror_at
    from lm_eval.errors import EvalError
    from lm_eval.tasks import TaskManager

    listed = subprocess.run(
        [sys.executable, "-m", "lm_eval", "ls", "subtasks", "--data_dir", data_dir, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    names = [entry["name"] for entry in json.loads(listed.stdout)]
    started = time.perf_counter()
    tasks, failed = {}, []
    with mirror_at(data_dir), contextlib.redirect_stdout(io.StringIO()):
        manager = TaskManager()
        for name in names:
            try:
                tasks.update(manager.load([name])["tasks"])
            except EvalError as error:
                failed.append(f"{name}: {error}")
    loaded = time.perf_counter()
    search = Search.of(tasks, 13)
    built = time.perf_counter()
    size = sum(getattr(search.index, field).nbytes for field in ARRAYS)
    print(
        f"{len(tasks)} tasks ({len(failed)} cannot be loaded), "
        f"{len(search.layout.queries)} documents, {search.index.units} units: loaded in "
        f"{loaded - started:.1f} s, indexed in {built - loaded:.1f} s; index {size / 1e6:.0f} MB"
    )
    for line in failed:
        print(f"  {line[:150]}")


ARRAYS = ("text", "ends", "unit_word", "unit_length", "ngram_hashes", "ngram_units")
ARRAYS += ("short_hashes", "short_units", "ngram_bitmap", "short_bitmap")


def kill(folder: Path, times: int = 10) -> None:
    """Kills a scan ten times, and compares its findings with those of a scan without a break."""
    rng = random.Random(3)
    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch) / "whole", Path(scratch) / "broken"
        words = [str(folder / "corpus.txt"), "--tasks", "demo", "--workers", "2"]
        took = run([*words, "-o", str(whole)])
        finished, parts = 0, []
        journal = Path(f"{broken}.partial") / "journal.jsonl"
        for _ in range(times):
            process = subprocess.Popen(
                [*COMMAND, *words, "-o", str(broken)],
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            time.sleep(1.5 + took["scan"] / times * rng.uniform(0.2, 1.4))
            process.kill()
            process.wait()
            lines = journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0
            parts.append(lines - finished)
            finished = lines
        run([*words, "-o", str(broken)])
        same = whole.read_bytes() == broken.read_bytes()
        print(f"killed {times} times; shards finished in each part: {parts}; identical: {same}")


def main() -> None:
    """Runs the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="action", required=True)
    for name in ("generate", "scan", "kill"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.choices["generate"].add_argument("--gigabytes", type=float, default=2.0)
    commands.choices["scan"].add_argument("--tasks", nargs="+", default=["demo"])
    commands.choices["scan"].add_argument("--data_dir")
    commands.add_parser("index").add_argument("--data_dir", required=True)
    arguments = parser.parse_args()
    if arguments.action == "generate":
        generate(arguments.folder, arguments.gigabytes)
    elif arguments.action == "scan":
        scan(arguments.folder, arguments.tasks, arguments.data_dir)
    elif arguments.action == "index":
        index(arguments.data_dir)
    else:
        kill(arguments.folder)


if __name__ == "__main__":
    main()
