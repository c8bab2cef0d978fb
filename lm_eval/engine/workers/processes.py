"""Workers as processes of this machine, with the standard library alone."""

from __future__ import annotations

import errno
import math
import os
import pickle
import queue
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from lm_eval.engine.threads import USER_SETTINGS
from lm_eval.engine.workers.child import END_SECONDS, Child
from lm_eval.engine.workers.devices import GPUS_VARIABLE, usable_cpus, visible_gpus
from lm_eval.engine.workers.messages import Ended, Message, Placed, Start, Stop
from lm_eval.engine.workers.pool import WorkerPool
from lm_eval.errors import ConfigError, ModelError

MIN_LOADING = 8
"""At least so many workers may load the model at the same time; more on machines with more
processors."""


def worker_count(gpus_per_worker: float | None, cpus_per_worker: float | None) -> int:
    """Returns the number of workers for `--workers auto`: as many as GPUs or processors allow."""
    gpus = len(visible_gpus())
    if gpus and gpus_per_worker != 0:
        return max(1, math.floor(gpus / (gpus_per_worker or 1)))
    return max(1, math.floor(usable_cpus() / (cpus_per_worker or 1)))


def environments(
    workers: int, gpus_per_worker: float | None, cpus_per_worker: float | None
) -> list[dict[str, str]]:
    """Returns the environment variables of each worker: its GPUs and its number of threads.

    Without `gpus_per_worker`, the GPUs are divided equally; if there are fewer GPUs than workers,
    several workers share one. Raises `ConfigError` if there are too few.
    """
    gpus = visible_gpus()
    each = gpus_per_worker
    if each is None and gpus:
        each = len(gpus) // workers if len(gpus) >= workers else len(gpus) / workers
    if each and each * workers > len(gpus) + 1e-6:
        raise ConfigError(
            f"{workers} workers with {each:g} GPUs each need {workers * each:g} GPUs, and this "
            f"machine has {len(gpus)}. Give a smaller --workers or --gpus_per_worker; a part of "
            "1 lets workers share a GPU."
        )
    threads = max(1, int(cpus_per_worker or usable_cpus() // workers))
    variables = {} if any(os.environ.get(name) for name in USER_SETTINGS) else _threads(threads)
    found = []
    for number in range(workers):
        own = dict(variables)
        if gpus and each:
            size = max(1, math.floor(each))
            first = math.floor(number * each + 1e-6) if each < 1 else number * size
            own[GPUS_VARIABLE] = ",".join(gpus[first : first + size])
        elif gpus and each == 0:
            own[GPUS_VARIABLE] = ""
        found.append(own)
    return found


def _threads(count: int) -> dict[str, str]:
    return {"OMP_NUM_THREADS": str(count)}


class ProcessPool(WorkerPool):
    """Starts each worker as a process of this machine."""

    def __init__(self, start: Start, variables: Sequence[Mapping[str, str]]) -> None:
        """Prepares for workers.

        Args:
            start: the first message to each worker.
            variables: environment variables, one item per worker. The replacement of a worker gets
                those of the one that it replaces.
        """
        self._start = pickle.dumps(start, pickle.HIGHEST_PROTOCOL)
        self._variables = variables
        self._children: dict[int, Child] = {}
        self._places: dict[int, int] = {}
        self._inbox: queue.SimpleQueue[tuple[int, bytes | Ended]] = queue.SimpleQueue()
        self._placed: list[tuple[int, Message]] = []
        self._started = 0
        self._logs = Path(tempfile.mkdtemp(prefix="lm_eval_workers_"))

    def start(self) -> int:
        self._started += 1
        number = self._started
        taken = set(self._places.values())
        free = [place for place in range(len(self._variables)) if place not in taken]
        place = self._places[number] = free[0] if free else number % len(self._variables)
        log = self._logs / f"worker_{number}.log"
        try:
            with log.open("wb") as output:
                child = Child(
                    {"TQDM_DISABLE": "1", **self._variables[place]},
                    lambda data: self._inbox.put((number, data)),
                    lambda how: self._inbox.put((number, Ended(_with_output(how, log)))),
                    output,
                )
        except OSError as error:
            remedy = "Give fewer --workers, or more room for temporary files"
            if error.errno in (errno.EMFILE, errno.ENFILE):
                remedy = "Give fewer --workers, or allow more open files (`ulimit -n`)"
            elif error.errno in (errno.EAGAIN, errno.ENOMEM):
                remedy = "Give fewer --workers, or allow more processes (`ulimit -u`) and memory"
            raise ModelError(
                f"process {number} of the workers could not be started: {error.strerror}. {remedy}."
            ) from None
        self._children[number] = child
        child.send(self._start)
        self._placed.append((number, Placed(f"process {child.pid}")))
        return number

    def most_loading(self) -> int:
        return max(MIN_LOADING, 2 * usable_cpus())

    def send(self, worker: int, message: object) -> None:
        if (child := self._children.get(worker)) is not None:
            child.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def poll(self, timeout: float) -> Sequence[tuple[int, Message]]:
        found, self._placed = self._placed, []
        try:
            item = self._inbox.get_nowait() if found else self._inbox.get(timeout=timeout)
            while True:
                number, data = item
                if number in self._children:
                    if isinstance(data, Ended):
                        self._forget(number)
                    else:
                        data = pickle.loads(data)
                    found.append((number, data))
                item = self._inbox.get_nowait()
        except queue.Empty:
            return found

    def stop(self, worker: int) -> None:
        if (child := self._children.get(worker)) is not None:
            child.stop()
            self._forget(worker)

    def _forget(self, worker: int) -> None:
        del self._children[worker], self._places[worker]

    def processes(self) -> dict[int, int]:
        """Returns the process ids of the workers, by number."""
        return {number: child.pid for number, child in self._children.items()}

    def close(self) -> None:
        for number in self._children:
            self.send(number, Stop())
        limit = time.monotonic() + END_SECONDS
        for number, child in list(self._children.items()):
            child.wait(limit - time.monotonic())
            self.stop(number)
        shutil.rmtree(self._logs, ignore_errors=True)


def _with_output(how: str, log: Path) -> str:
    """Returns how a worker ended, with the last line that it printed."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").split("\n")[-200:]
    except OSError:
        return how
    printed = [line.strip() for line in lines if line.strip()]
    return f"{how}; its last output: {printed[-1][:300]}" if printed else how
