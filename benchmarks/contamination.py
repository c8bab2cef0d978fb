"""Speed of contamination scans: index, text, JSON lines, memory, and resuming after kill -9.

    python benchmarks/contamination.py generate DIR --gigabytes 2      # a corpus to scan
    python benchmarks/contamination.py scan DIR                        # rates, cores, memory
    python benchmarks/contamination.py scan DIR --data_dir MIRROR      # the same, with all tasks
    python benchmarks/contamination.py index --data_dir MIRROR         # the index of all tasks
    python benchmarks/contamination.py kill DIR                        # ten times kill -9

Memory is the proportional set size (PSS) of all processes of a scan: shared pages count once.

The corpus is generated from words with the frequencies of natural text, with punctuation, upper
case and line breaks, and with some documents of the demo tasks in it.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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


@dataclass
class Memory:
    """The most memory that the processes of a scan used, in MB."""

    indexing: float = 0.0
    """Of all processes together, before that."""
    parent: float = 0.0
    workers: list[float] = field(default_factory=list)
    scanning: float = 0.0
    """Of all processes together, while the corpus was read."""

    def sample(self, process: int, scanning: bool) -> None:
        """Measures the processes once."""
        own, workers = pss(process), [pss(child) for child in children(process)]
        total = own + sum(workers)
        if not scanning:
            self.indexing = max(self.indexing, total)
        elif total > self.scanning:
            self.parent, self.workers, self.scanning = own, workers, total


def pss(process: int) -> float:
    """Returns the proportional set size of a process in MB; 0 if it has ended."""
    try:
        text = Path(f"/proc/{process}/smaps_rollup").read_text()
    except OSError:
        return 0.0
    found = re.search(r"^Pss:\s+(\d+) kB", text, re.MULTILINE)
    return int(found[1]) * 1024 / 1e6 if found else 0.0


def children(process: int) -> list[int]:
    """Returns the processes that scan for a process."""
    found = []
    with contextlib.suppress(OSError):
        for child in Path(f"/proc/{process}/task/{process}/children").read_text().split():
            if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes():
                found.append(int(child))
    return found


@dataclass(frozen=True)
class Took:
    """What a scan took, and the numbers that it reports."""

    seconds: float
    cpu: float
    scan: float
    rate: float
    index: float
    """The size of the index in MB."""
    memory: Memory


def run(words: list[str], output: Path) -> Took:
    """Runs a scan and returns what it took."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    memory, journal = Memory(), Path(f"{output}.partial") / "journal.jsonl"
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            [*COMMAND, *words, "-o", str(output)], stdout=subprocess.DEVNULL, stderr=errors
        )
        while process.poll() is None:
            memory.sample(process.pid, journal.exists() and journal.stat().st_size > 0)
            time.sleep(0.25)
        seconds = time.perf_counter() - started
        errors.seek(0)
        log = errors.read()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode:
        sys.exit(log)
    found = re.search(r"scanned in ([\d.]+) s \(([\d.]+) MB/s\)", log)
    size = re.search(r"the index takes ([\d.]+) MB", log)
    return Took(
        seconds,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        float(found[1]) if found else 0.0,
        float(found[2]) if found else 0.0,
        float(size[1]) if size else 0.0,
        memory,
    )


def scan(folder: Path, names: list[str], tasks: list[str], data_dir: str | None) -> None:
    """Prints the rates of one and of two processes."""
    more = ["--data_dir", data_dir] if data_dir else []
    if data_dir and not tasks:
        loaded, _ = load_all(data_dir)
        tasks = sorted(loaded)
    chosen = ["--tasks", *(tasks or ["demo"])]
    with tempfile.TemporaryDirectory() as scratch:
        for name in names:
            for workers in (1, 2):
                output = Path(scratch) / f"{name}.{workers}"
                took = run([str(folder / name), *chosen, *more, "--workers", str(workers)], output)
                memory = took.memory
                print(
                    f"{name}, {workers} process{'es' if workers > 1 else ''}: "
                    f"{took.rate:.1f} MB/s, {took.rate / workers:.1f} MB/s per process; "
                    f"scan {took.scan:.1f} s of {took.seconds:.1f} s; CPU {took.cpu:.1f} s; "
                    f"memory: index {took.index:.0f} MB; while scanning {memory.scanning:.0f} MB "
                    f"(parent {memory.parent:.0f}, "
                    f"others {', '.join(f'{value:.0f}' for value in memory.workers) or '-'}), "
                    f"{memory.scanning - took.index:.0f} MB beyond the index; "
                    f"before that up to {memory.indexing:.0f} MB",
                    flush=True,
                )


def load_all(data_dir: str) -> tuple[dict[str, Any], list[str]]:
    """Returns the tasks whose rows are in a mirror, and errors of those that cannot be loaded."""
    sys.path.insert(0, str(ROOT))
    from lm_eval.data import mirror_at
    from lm_eval.errors import EvalError
    from lm_eval.tasks import TaskManager

    listed = subprocess.run(
        [sys.executable, "-m", "lm_eval", "ls", "subtasks", "--data_dir", data_dir, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    tasks: dict[str, Any] = {}
    failed = []
    with mirror_at(data_dir), contextlib.redirect_stdout(io.StringIO()):
        manager = TaskManager()
        for name in (entry["name"] for entry in json.loads(listed.stdout)):
            try:
                tasks.update(manager.load([name])["tasks"])
            except EvalError as error:
                failed.append(f"{name}: {error}")
    return tasks, failed


def index(data_dir: str) -> None:
    """Prints how long the index of all tasks in a mirror takes."""
    started = time.perf_counter()
    tasks, failed = load_all(data_dir)
    loaded = time.perf_counter()
    from lm_eval.contamination.search import Search

    count = len(tasks)
    search = Search.of(lambda: tasks, 13)
    print(
        f"{count} tasks ({len(failed)} cannot be loaded), {search.layout.documents} documents, "
        f"{search.index.units} units: loaded in {loaded - started:.1f} s, indexed in "
        f"{time.perf_counter() - loaded:.1f} s; index {search.index.nbytes / 1e6:.0f} MB"
    )
    for line in failed:
        print(f"  {line[:150]}")


def kill(folder: Path, times: int = 10) -> None:
    """Kills a scan ten times, and compares its findings with those of a scan without a break."""
    sys.path.insert(0, str(ROOT))
    from lm_eval.contamination.corpus import SHARD

    rng = random.Random(3)
    corpus = folder / "corpus.txt"
    with tempfile.TemporaryDirectory() as scratch:
        whole, broken = Path(scratch) / "whole", Path(scratch) / "broken"
        words = [str(corpus), "--tasks", "demo", "--workers", "2"]
        run(words, whole)
        finished, parts, again = 0, [], []
        shards = corpus.stat().st_size // SHARD
        journal = Path(f"{broken}.partial") / "journal.jsonl"
        for _ in range(times):
            process = subprocess.Popen(
                [*COMMAND, *words, "-o", str(broken)],
                stderr=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )
            goal = finished + rng.uniform(0.2, 1.0) * shards / (times + 1)
            while process.poll() is None and entries(journal) < goal:
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGSTOP)  # so that nothing is read while it is counted
            workers = children(process.pid)
            again.append(sum(in_vain(worker, corpus.resolve(), SHARD) for worker in workers))
            process.kill()
            os.killpg(process.pid, signal.SIGCONT)
            process.wait()
            lines = entries(journal)
            parts.append(lines - finished)
            finished = lines
        run(words, broken)
        same = whole.read_bytes() == broken.read_bytes()
    print(
        f"killed {times} times; shards of {SHARD >> 20} MiB finished in each part: {parts}; read "
        f"again after each kill, in MiB: {[round(size / (1 << 20), 1) for size in again]}, "
        f"{sum(again) / (1 << 20):.1f} of {corpus.stat().st_size / (1 << 20):.0f} in all; "
        f"identical: {same}"
    )


def entries(journal: Path) -> int:
    """Returns how many shards a journal lists; its first line is a header."""
    return journal.read_bytes().count(b"\n") - 1 if journal.exists() else 0


def in_vain(process: int, corpus: Path, shard: int) -> int:
    """Returns how many bytes of its present shard a process has read.

    Counts a whole shard if the process has none open: it may have finished one that is not in the
    journal yet.
    """
    folder = Path(f"/proc/{process}")
    for file in (folder / "fd").iterdir():
        with contextlib.suppress(OSError):
            if file.readlink() == corpus:
                text = (folder / "fdinfo" / file.name).read_text()
                # Less than one read into a range: the end of the one before is still searched.
                read = int(text.split()[1]) % shard
                return read if read >= 1 << 20 else shard
    return shard


def main() -> None:
    """Runs the benchmark that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    commands = parser.add_subparsers(dest="action", required=True)
    for name in ("generate", "scan", "kill"):
        commands.add_parser(name).add_argument("folder", type=Path)
    commands.choices["generate"].add_argument("--gigabytes", type=float, default=2.0)
    commands.choices["scan"].add_argument("--tasks", nargs="+", default=[])
    commands.choices["scan"].add_argument(
        "--files", nargs="+", default=["corpus.txt", "corpus.jsonl"]
    )
    commands.choices["scan"].add_argument("--data_dir")
    commands.add_parser("index").add_argument("--data_dir", required=True)
    arguments = parser.parse_args()
    if arguments.action == "generate":
        generate(arguments.folder, arguments.gigabytes)
    elif arguments.action == "scan":
        scan(arguments.folder, arguments.files, arguments.tasks, arguments.data_dir)
    elif arguments.action == "index":
        index(arguments.data_dir)
    else:
        kill(arguments.folder)


if __name__ == "__main__":
    main()
