"""The caller's side: one supervisor per worker, and the verdict of one program after another."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm_eval.sandbox.processes import (
    FIRST_OWN_USER,
    descendants,
    folder_exceeds,
    seconds_without_processor,
)
from lm_eval.sandbox.types import OUTCOMES, IsolationError, Limits, Verdict

_START, _END, _DROP = b"s", b"e", b"d"
_BOOT = (
    "import sys, json; sys.path.insert(0, json.loads(sys.argv[1])['package_root']); "
    "from lm_eval.sandbox.supervisor import main; main()"
)
#: The whole environment of programs: nothing of the caller's. Sets and dictionaries of strings have
#: the same order in every run, and numerical libraries start no threads of their own.
_ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
}
_SMALL_PROGRAM, _ITS_TESTS = "def answer():\n    return 42\n", "assert answer() == 42\n"
_USERS_PER_PROCESS = 64
#: How often the scratch folder is measured where the kernel does not limit it.
_TICK = 0.1
_EXTENSION = 9
#: The processes of one program: its own, and that of its tests.
_PROCESSES = 2
_VERDICT_BYTES = 65536


class SupervisorDiedError(Exception):
    """A supervisor that ended before it was told to."""


class Worker:
    """Runs one program at a time.

    Args:
        number: distinguishes the workers of this process.
        mechanisms: what isolates the programs, of `types.MECHANISMS`.
        limits: what each program may use.
        preload: modules to import before any program runs.
    """

    def __init__(
        self,
        number: int,
        mechanisms: Sequence[str],
        limits: Limits,
        preload: Sequence[str] = (),
    ) -> None:
        self._limits = limits
        self._home = tempfile.mkdtemp(prefix="lm-eval-sandbox-")
        # A program's own user must be able to reach its scratch folder below.
        os.chmod(self._home, 0o711)
        self._scratch = None if "namespaces" in mechanisms else f"{self._home}/scratch"
        self._control, theirs = socket.socketpair()
        settings = {
            "mechanisms": list(mechanisms),
            "limits": limits.as_dict(),
            "home": self._home,
            "user": _own_user(number) if os.geteuid() == 0 else None,
            "preload": list(preload),
            "package_root": str(Path(__file__).parents[2]),
            "packages": [path for path in sys.path if path.endswith("-packages")],
        }
        command = [sys.executable, "-s", "-B", "-X", "utf8", "-c", _BOOT]
        with theirs:
            self._process = subprocess.Popen(
                [*command, json.dumps(settings), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=_ENVIRONMENT,
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        self._answers = self._control.makefile("rb")
        try:
            answer = self._answer()
        except SupervisorDiedError:
            answer = {"error": "its process ended"}
        if "error" in answer:
            self.close()
            raise IsolationError(f"Cannot start the sandbox: {answer['error']}")
        self._own_processes = descendants(self._process.pid)
        self._starved = 0.0
        #: Whether programs run as another, unprivileged user.
        self.drops_user = answer["user"] is not None
        self._try_out(mechanisms)

    def _try_out(self, mechanisms: Sequence[str]) -> None:
        """Raises `IsolationError` if not even a small program passes, so that none is judged."""
        try:
            verdict = self.judge(_SMALL_PROGRAM, _ITS_TESTS)
        except SupervisorDiedError as error:
            verdict = Verdict(False, "died", str(error), 0.0)
        if not verdict.passed:
            self.close()
            raise IsolationError(
                f"The sandbox cannot run programs with {'+'.join(mechanisms) or 'limits'}: "
                f"{verdict.outcome}, {verdict.detail}"
            )

    def judge(self, program: str, tests: str, given: str = "") -> Verdict:
        """Runs a program and its tests, and returns the verdict.

        `given` is the text of the task that the program begins with; see `lm_eval.sandbox.run`.
        """
        begin = time.monotonic()
        self._starved = 0.0
        # Not a pipe: a program of the same user could open a pipe by the caller's `/proc` entry.
        verdict, send_verdict = (end.detach() for end in socket.socketpair())
        descriptors = [_file_with(program), _file_with(json.dumps([tests, given])), send_verdict]
        try:
            try:
                socket.send_fds(self._control, [_START], descriptors)
            except OSError as error:
                raise SupervisorDiedError(str(error)) from None
            finally:
                for descriptor in descriptors:
                    os.close(descriptor)
            outcome, detail = self._wait(verdict, begin + self._limits.wall_seconds)
        finally:
            os.close(verdict)
        seconds = time.monotonic() - begin
        if outcome == "died":
            self._order(_END)
            outcome, detail = self._cause(self._answer()[0], detail)
        else:
            self._order(_DROP)
        return Verdict(outcome == "passed", outcome, detail, seconds)

    def _wait(self, verdict: int, deadline: float) -> tuple[str, str]:
        """Returns the outcome and its detail when the tests, the clock or the scratch say so."""
        received = b""
        while True:
            left = deadline + self._starved - time.monotonic()
            if left <= 0 and self._is_starved_further():
                continue
            if left <= 0:
                return "timed out", f"no verdict after {self._limits.wall_seconds:g} seconds"
            control = self._control.fileno()
            ready, _, _ = select.select([verdict, control], [], [], min(left, _TICK))
            if control in ready:
                raise SupervisorDiedError("its connection is closed")
            if ready:
                part = os.read(verdict, _VERDICT_BYTES)
                received += part
                if not part or len(received) > _VERDICT_BYTES:
                    return _read_verdict(received)
            elif self._scratch and self._overflows(self._scratch):
                return "died", "the program filled its scratch folder"

    def _is_starved_further(self) -> bool:
        """Extends the time by what the processes have spent waiting for a processor.

        So a busy machine does not turn right answers into wrong ones. The wall limit is exceeded
        no more than tenfold.
        """
        running = descendants(self._process.pid) - self._own_processes
        if len(running) > _PROCESSES:
            return False  # it has started others, which take the processor from it
        waited = min(seconds_without_processor(running), _EXTENSION * self._limits.wall_seconds)
        further = waited > self._starved + _TICK
        self._starved = max(self._starved, waited)
        return further

    def _overflows(self, scratch: str) -> bool:
        return folder_exceeds(scratch, self._limits.scratch_bytes, self._limits.scratch_files)

    def _order(self, order: bytes) -> None:
        try:
            self._control.sendall(order)
        except OSError as error:
            raise SupervisorDiedError(str(error)) from None

    def _cause(self, ended: dict[str, Any], detail: str) -> tuple[str, str]:
        number = ended["signal"]
        used_up = ended["cpu_seconds"] >= self._limits.cpu_seconds - 0.5
        if number == signal.SIGXCPU or (number == signal.SIGKILL and used_up):
            return "timed out", f"used more than {self._limits.cpu_seconds:g} seconds of processor"
        name = signal.Signals(number).name if number in set(signal.Signals) else ""
        return "died", f"{detail} ({name})" if name else detail

    def _answer(self) -> Any:
        try:
            line = self._answers.readline()
        except OSError:
            line = b""
        if not line.endswith(b"\n"):
            raise SupervisorDiedError("its connection is closed")
        return json.loads(line)

    def close(self) -> None:
        """Ends the supervisor and whatever it has started, and removes its folder."""
        self._answers.close()
        self._control.close()
        try:
            self._process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self._home, ignore_errors=True)


def _own_user(number: int) -> int:
    """Returns a user id that no account and no other worker has."""
    return FIRST_OWN_USER + os.getpid() * _USERS_PER_PROCESS + number % _USERS_PER_PROCESS


def _file_with(text: str) -> int:
    """Returns the descriptor of a file without a name that contains `text`, at its beginning."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("sandbox", os.MFD_CLOEXEC)
    else:
        descriptor, path = tempfile.mkstemp()
        os.unlink(path)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(text.encode("utf-8", "surrogatepass"))
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


def _read_verdict(received: bytes) -> tuple[str, str]:
    try:
        outcome, detail = json.loads(received)
    except ValueError:
        return "died", "the tests' process ended without a verdict"
    return (outcome, detail) if outcome in OUTCOMES else ("died", "no known verdict")
