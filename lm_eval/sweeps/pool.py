"""Runs jobs in worker processes, as many at a time as GPUs are free or the user allows."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lm_eval.sweeps import worker
from lm_eval.sweeps.devices import Gpu
from lm_eval.sweeps.jobs import Job

logger = logging.getLogger(__name__)

COMMAND = (sys.executable, "-m", "lm_eval.cli.sweep_worker")
"""The command of a worker process."""
#: Seconds that an interrupted worker gets to store its answers before it is killed.
_GRACE = 20.0
#: Seconds between two checks whether a worker still lives.
_POLL = 2.0

#: Called with the name of a run and what became of it: an event of `worker.work`.
OnEvent = Callable[[str, dict[str, Any]], None]


@dataclass
class _Worker:
    """A running job."""

    job: Job
    gpus: Sequence[Gpu]
    process: subprocess.Popen[bytes]
    log: Path | None
    current: str | None = None
    """The run that is evaluated now."""
    done: list[str] = field(default_factory=list)
    """The runs that have ended."""
    loaded: bool = False
    ended: bool = False
    """Whether the job reported its end."""

    def note(self, event: Mapping[str, Any]) -> None:
        """Keeps what an event says about the job."""
        kind = event["event"]
        if kind == worker.LOADED:
            self.loaded = True
        elif kind == worker.STARTED:
            self.current = event["run"]
        elif kind in (worker.FINISHED, worker.FAILED):
            self.current = None
            self.done.append(event["run"])
        elif kind == worker.DONE:
            self.ended = True


class Pool:
    """Runs jobs in worker processes.

    Args:
        gpus: the free GPUs.
        most: how many jobs run at a time; None for one per GPU, and one without a GPU.
        logs: the folder for what workers print if several run at a time.
        fresh: whether stored answers are ignored.
        on_event: called for each run that starts, finishes or fails.
        command: the command of a worker.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        most: int | None,
        logs: Path,
        fresh: bool,
        on_event: OnEvent,
        command: Sequence[str] = COMMAND,
    ) -> None:
        self._free, self._most, self._logs = list(gpus), most, logs
        self._all = len(gpus)
        self._fresh, self._on_event, self._command = fresh, on_event, command
        self._events: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self._workers: list[_Worker] = []

    def run(self, jobs: Sequence[Job]) -> None:
        """Runs all jobs; returns when the last one has ended.

        A worker that dies costs the run that it was evaluating; its other runs are continued in a
        new one. On an interrupt, workers are interrupted, too, and store their answers.
        """
        waiting = list(jobs)
        together = (self._all if self._most is None else self._most) > 1
        try:
            while waiting or self._workers:
                for job in [job for job in waiting if self._fits(job)]:
                    if self._fits(job):  # still, after those before it have started
                        waiting.remove(job)
                        self._start(job, together)
                waiting += self._next_event()
        finally:
            self._stop()

    def _fits(self, job: Job) -> bool:
        """Returns whether a job can start now."""
        if self._most is not None and len(self._workers) >= self._most:
            return False
        if job.gpus:
            return job.gpus <= len(self._free)
        without_gpu = sum(not one.gpus for one in self._workers)
        return self._most is not None or not without_gpu

    def _start(self, job: Job, together: bool) -> None:
        """Starts the process of a job on free GPUs; `together` if several may run at a time."""
        gpus, self._free = self._free[: job.gpus], self._free[job.gpus :]
        environment = dict(os.environ)
        if gpus:
            if "CUDA_VISIBLE_DEVICES" not in environment:  # numbers are those of `nvidia-smi`
                environment["CUDA_DEVICE_ORDER"] = "PCI_BUS_ID"
            environment["CUDA_VISIBLE_DEVICES"] = ",".join(gpu.name for gpu in gpus)
            logger.info("%s runs on GPU %s.", job.name, environment["CUDA_VISIBLE_DEVICES"])
        log = self._logs / f"{job.runs[0].name}.log" if together else None
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
        opened = log.open("ab") if log is not None else None
        try:
            process = subprocess.Popen(
                list(self._command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=opened,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches workers through `_stop`
            )
        finally:
            if opened is not None:
                opened.close()
        runs = [
            {"name": run.name, "settings": run.config.settings(), "fresh": self._fresh}
            for run in job.runs
        ]
        started = _Worker(job, gpus, process, log)
        self._workers.append(started)
        assert process.stdin is not None
        try:
            process.stdin.write((json.dumps(runs, default=str) + "\n").encode())
            process.stdin.flush()
        except BrokenPipeError:  # it has died; its end is noticed like that of any other
            pass
        threading.Thread(target=self._read, args=(started,), daemon=True).start()

    def _read(self, one: _Worker) -> None:
        """Puts the events of a worker into the queue, and None at their end."""
        assert one.process.stdout is not None
        for line in one.process.stdout:
            try:
                event = json.loads(line)
            except ValueError:  # it was killed while it wrote
                break
            self._events.put((one, event))
        self._events.put((one, None))

    def _next_event(self) -> list[Job]:
        """Waits for an event and handles it; returns what is left of a job whose worker died."""
        try:
            one, event = self._events.get(timeout=_POLL)
        except queue.Empty:
            return self._dead()
        if one not in self._workers:
            return []
        if event is None:
            return self._end(one)
        one.note(event)
        if event["event"] == worker.MODEL_FAILED:
            self._fail(one, [run.name for run in one.job.runs], event["message"])
        elif "run" in event:
            self._on_event(event["run"], event)
        return []

    def _dead(self) -> list[Job]:
        """Ends workers that have died but whose output is kept open by a process they started."""
        dead = [one for one in self._workers if one.process.poll() is not None]
        return [job for one in dead if self._events.empty() for job in self._end(one)]

    def _end(self, one: _Worker) -> list[Job]:
        """Removes a worker whose output has ended; returns what is left of its job, if it died."""
        code = one.process.wait()
        self._workers.remove(one)
        self._free = [*self._free, *one.gpus]
        if one.process.stdin is not None:
            with suppress(BrokenPipeError):  # it has died before it read its runs
                one.process.stdin.close()
        left = one.job.without(one.done)
        if left is None or one.ended:
            return []
        place = f" Its output is in {one.log}." if one.log is not None else ""
        why = f"its process ended ({_reason(code)}).{place}"
        if one.current is None:  # it did not get to the next run
            when = "" if one.loaded else " while the model was loaded"
            self._fail(one, [run.name for run in left.runs], f"{why[:-1]}{when}.")
            return []
        self._fail(one, [one.current], why)
        rest = left.without(one.done)
        return [rest] if rest is not None else []

    def _fail(self, one: _Worker, names: Sequence[str], message: str) -> None:
        """Reports that runs of a worker have failed."""
        for name in names:
            event = {"event": worker.FAILED, "run": name, "message": message}
            one.note(event)
            self._on_event(name, event)

    def _stop(self) -> None:
        """Interrupts the workers that still run, and kills those that do not end."""
        for one in self._workers:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGINT)
        for one in self._workers:
            try:
                one.process.wait(timeout=_GRACE)
            except subprocess.TimeoutExpired:
                one.process.kill()
                one.process.wait()
        self._workers.clear()


def _reason(code: int) -> str:
    """Returns why a process ended: the name of the signal, or its exit code."""
    if code >= 0:
        return f"exit code {code}"
    name = signal.Signals(-code).name if -code in {int(one) for one in signal.Signals} else -code
    return f"{name}, perhaps for lack of memory" if name == "SIGKILL" else str(name)
