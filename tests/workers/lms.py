"""Models for tests of workers. They are created in other processes, from the path of this file."""

from __future__ import annotations

import atexit
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from lm_eval.api.instance import Instance
from lm_eval.api.model import LM


def score(text: str) -> float:
    """Returns a number that depends on the text alone."""
    return -(int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") % 10_000) / 100


def append_texts(log: Path, texts: list[str]) -> None:
    """Appends the number of this process and the hash of each text to a file."""
    lines = [f"{os.getpid()} {hashlib.md5(text.encode()).hexdigest()}\n" for text in texts]
    with log.open("a") as file:
        file.write("".join(lines))


def wait_for_turn(log: Path) -> None:
    """Waits until a log may have more lines than it has."""
    limit = Path(f"{log}.pause")
    while limit.is_file() and len(asked(log)) >= int(limit.read_text() or 0):
        time.sleep(0.02)


class LogLM(LM):
    """Scores texts by their hash, and writes each text that it is asked for to a file.

    While the file `{log}.pause` exists, it waits once the log has as many lines as that file says.

    Args:
        log: the file; each line is the process and the hash of a text. `{log}.begun` has those
            that it has begun with, also if it has not finished them.
        seconds: how long a batch of 8 requests takes.
        deadly: a request that contains this text ends the process.
        faulty: a request that contains this text raises an exception.
        broken: what the constructor raises.
    """

    speed_arguments = ("log", "seconds", "deadly", "faulty")

    def __init__(
        self,
        log: str = "",
        seconds: float = 0.0,
        deadly: str = "",
        faulty: str = "",
        broken: str = "",
        **others: Any,
    ) -> None:
        super().__init__()
        if broken:
            raise RuntimeError(broken)
        self._log, self._seconds = log, seconds
        self._deadly, self._faulty = deadly, faulty

    def identity(self) -> dict[str, Any]:
        changed = Path(f"{self._log}.identity")
        return {"weights": changed.read_text() if self._log and changed.is_file() else "the same"}

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        found = []
        for start in range(0, len(requests), 8):
            batch = requests[start : start + 8]
            texts = [one.args[0] + one.args[1] for one in batch]
            if self._log:
                wait_for_turn(Path(self._log))
                append_texts(Path(f"{self._log}.begun"), texts)
            time.sleep(self._seconds)
            for text in texts:
                if self._deadly and self._deadly in text:
                    os.kill(os.getpid(), signal.SIGKILL)
                if self._faulty and self._faulty in text:
                    raise ValueError("cannot answer this one")
            if self._log:
                append_texts(Path(self._log), texts)
            answers = [(score(text), False) for text in texts]
            self.cache_hook.add_batch("loglikelihood", [one.args for one in batch], answers)
            found += answers
        return found

    def loglikelihood_rolling(self, requests: list[Instance]) -> list[float]:
        return [score(one.args[0]) for one in requests]

    def generate_until(self, requests: list[Instance]) -> list[str]:
        time.sleep(self._seconds * (len(requests) // 8 + 1))
        return [f"{score(one.args[0]):.0f}" for one in requests]


class StartsAnother(LogLM):
    """Starts a process, as engines do, and ends it when the program ends.

    Its number is written to the file `other`. `ends_it` is whether the model ends it by itself.
    """

    speed_arguments = (*LogLM.speed_arguments, "other", "ends_it")

    def __init__(self, other: str, ends_it: bool, **more: Any) -> None:
        super().__init__(**more)
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        with Path(other).open("a") as file:
            file.write(f"{process.pid}\n")
        if ends_it:
            atexit.register(lambda: Path(f"{other}.ended").touch())


class ReadsDocuments(LogLM):
    """Reads a field of the documents that its requests are made from."""

    def loglikelihood(self, requests: list[Instance]) -> list[tuple[float, bool]]:
        return [(-float(request.doc["extra"].number), False) for request in requests]


class BadContext(LogLM):
    """Fails when it gets the settings of the run."""

    def set_run_context(self, context: Any) -> None:
        raise RuntimeError("no such seed")


def asked(log: Path) -> list[str]:
    """Returns the hashes of the texts in a log, in the order in which they were asked."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [line.split()[1] for line in lines]


def is_running(process: int) -> bool:
    """Returns whether a process exists and has not ended."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends_soon(process: int) -> bool:
    """Waits up to ten seconds for the end of a process; returns whether it has ended."""
    limit = time.monotonic() + 10
    while is_running(process) and time.monotonic() < limit:
        time.sleep(0.02)
    return not is_running(process)


def processes(log: Path) -> list[int]:
    """Returns the processes in a log, the last one last."""
    lines = log.read_text().splitlines() if log.exists() else []
    return list(dict.fromkeys(int(line.split()[0]) for line in lines))
