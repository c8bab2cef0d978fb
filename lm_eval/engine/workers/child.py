"""Processes that hold a model: starting them, talking to them, and how they ended."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

#: How long a process may take to end by itself, in seconds.
END_SECONDS = 10.0

#: Python puts the working directory first into the path of a command, where its files would hide
#: modules of the standard library. `PYTHONPATH` has the directories that the evaluation uses.
_WITHOUT_DIRECTORY = "import sys; sys.path[:1] = [one for one in sys.path[:1] if one]; "
_WORKER = "from lm_eval.engine.workers.worker_process import main; main({})"


def start_process(
    command: str, variables: Mapping[str, str], output: Any = None, own_group: bool = False
) -> tuple[subprocess.Popen[bytes], Connection]:
    """Starts a Python process; returns it and the connection to it.

    Not with `multiprocessing`, which would import the main module of the evaluation there, and so
    fail if that has no `if __name__ == "__main__"`.

    Args:
        command: Python code; `{}` in it becomes the file descriptor of its end of the connection.
        variables: environment variables, in addition to those of this process.
        output: a file for what the process prints; by default it prints where this one does.
        own_group: whether it leads a new process group, so that it can be ended with the processes
            that it starts.
    """
    ours, theirs = multiprocessing.Pipe()
    paths = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    process = subprocess.Popen(
        [sys.executable, "-c", _WITHOUT_DIRECTORY + command.format(theirs.fileno())],
        env={**os.environ, "PYTHONPATH": paths, **variables},
        pass_fds=[theirs.fileno()],
        stdout=output,
        stderr=None if output is None else subprocess.STDOUT,
        start_new_session=own_group,
    )
    theirs.close()
    return process, ours


def wait_for_end(process: subprocess.Popen[bytes]) -> int:
    """Returns the exit status of a process that should end; kills it if it does not."""
    try:
        return process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()


def describe_exit(status: int) -> str:
    """Returns how a process ended: "was killed by SIGKILL" or "ended with exit code 1"."""
    if status >= 0:
        return f"ended with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"was killed by {name}"


class Child:
    """The process of a worker.

    It is ended together with the processes that it has started. Threads send and receive, so that
    neither a process that does not read nor one that sends much keeps its owner waiting.
    """

    def __init__(
        self,
        variables: Mapping[str, str],
        received: Callable[[bytes], None],
        ended: Callable[[str], None],
        output: Any = None,
    ) -> None:
        """Starts the process.

        Args:
            variables: its environment variables, in addition to those of this process.
            received: called in a thread with each message, as bytes.
            ended: called in a thread once the process has ended, with a description of how.
            output: a file for what the process prints.
        """
        self._variables, self._output = variables, output
        self._received, self._ended = received, ended
        self._has_ended = threading.Event()
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        started: queue.SimpleQueue[OSError | None] = queue.SimpleQueue()
        # The kernel ends the process together with the thread that started it, so this thread
        # stays until the process has ended.
        threading.Thread(target=self._live, args=(started,), daemon=True).start()
        if (error := started.get()) is not None:
            raise error
        threading.Thread(target=self._send_all, daemon=True).start()

    def send(self, message: bytes) -> None:
        """Sends a pickled message; does nothing if the process has ended."""
        self._outbox.put(message)

    def stop(self) -> None:
        """Kills the process and those that it has started; returns at once."""
        self._kill_group()
        self._outbox.put(None)

    def wait(self, timeout: float) -> bool:
        """Waits up to `timeout` seconds; returns whether the process has ended."""
        return self._has_ended.wait(timeout)

    def _kill_group(self) -> None:
        with suppress(OSError):  # they have ended
            os.killpg(self.pid, signal.SIGKILL)

    def _send_all(self) -> None:
        with suppress(OSError, ValueError):  # the process has ended
            while (message := self._outbox.get()) is not None:
                self._connection.send_bytes(message)

    def _live(self, started: queue.SimpleQueue[OSError | None]) -> None:
        """Starts the process, receives what it sends, and reports its end."""
        try:
            self._process, self._connection = start_process(
                _WORKER, self._variables, self._output, own_group=True
            )
        except OSError as error:
            started.put(error)
            return
        self.pid = self._process.pid
        started.put(None)
        with suppress(EOFError, OSError):
            while True:
                # A process of the model may keep the connection open after its parent has died.
                while not self._connection.poll(1.0):
                    if self._process.poll() is not None and not self._connection.poll(0.2):
                        raise EOFError
                self._received(self._connection.recv_bytes())
        status = wait_for_end(self._process)
        self._kill_group()  # such as the processes of an engine, which would keep its GPU
        self._has_ended.set()
        self._outbox.put(None)
        self._ended(describe_exit(status))
