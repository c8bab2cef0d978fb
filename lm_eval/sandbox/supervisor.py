"""The process that starts programs and their tests: small, imported once, and sealed.

It is started by `workers.py`, imports what programs usually import, enters the namespaces, and then
forks two processes per program. It never reads a program, a test or a verdict: those go from the
caller to the two processes, in files and pipes whose descriptors it passes on.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from lm_eval.sandbox import checker, guest, kernel, processes, seccomp
from lm_eval.sandbox.confine import Confinement, confine
from lm_eval.sandbox.namespaces import SCRATCH, Namespaces
from lm_eval.sandbox.paths import readable_paths
from lm_eval.sandbox.private_imports import open_private_imports
from lm_eval.sandbox.types import Limits

#: The caller's orders.
START, END, DROP = b"s", b"e", b"d"

#: Modules that programs often import. They are imported once, before any program runs.
_PRELOADED = """
abc array base64 bisect calendar cmath collections collections.abc contextlib copy dataclasses
datetime decimal enum fractions functools hashlib heapq html io itertools json keyword locale math
numbers operator os pprint queue random re statistics string struct sys textwrap threading time
timeit traceback types typing unicodedata uuid warnings
"""


class Supervisor:
    """Starts and ends the processes of one program at a time.

    Args:
        settings: what `workers.py` asks for: `mechanisms`, `limits`, `home` (a folder for this
            supervisor alone), `user` (an unprivileged user id, or None), `preload` (modules), and
            `package_root` and `packages` (folders to import from, without and with programs).
    """

    def __init__(self, settings: dict[str, Any]) -> None:
        for name in (*_PRELOADED.split(), *settings["preload"]):
            with suppress(ImportError):
                importlib.import_module(name)
        mechanisms = settings["mechanisms"]
        if mechanisms and sys.platform != "linux":
            raise OSError(f"{', '.join(mechanisms)}: only on Linux")
        home = settings["home"]
        user = processes.usable_user(settings["user"])
        limits = Limits(**settings["limits"])
        self._namespaces: Namespaces | None = None
        self._home = home
        self._scratch = f"{home}/scratch"
        readable = readable_paths()
        import_descriptors = 0
        other_processes = 4  # this process, the program's and the tests'
        #: The user that programs run as; None if it is the present one.
        self.user = user
        if user is not None:
            os.setgroups([])
        if "namespaces" in mechanisms:
            self._namespaces = Namespaces(home, readable, user)
            self._scratch = SCRATCH
            readable = ["/"]
        elif user is not None:
            opened = open_private_imports(user)
            import_descriptors = len(opened)
            readable += opened
        else:
            other_processes += processes.count_of_user() + 64
        if sys.platform == "linux":
            kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
            kernel.prctl(kernel.PR_SET_DUMPABLE, 0)  # programs cannot trace it
        self._plan = Confinement(
            mechanisms, limits, readable, self._scratch, user, other_processes, import_descriptors
        )
        self._running: list[int] = []
        self._dying: list[int] = []
        if "seccomp" in mechanisms:
            seccomp.program_filter(1)  # most of it is computed once
        checker.warm_up()
        gc.collect()
        gc.freeze()
        gc.disable()

    def start(self, control: socket.socket, program: int, tests: int, verdict: int) -> None:
        """Starts a program and its tests, each in a process of its own.

        Args:
            control: the connection to the caller, which neither process gets.
            program: the descriptor of a file with the program; only its process gets it.
            tests: the descriptor of a file with the tests; only their process gets it.
            verdict: a socket to the caller; only the process of the tests gets it.
        """
        requests, send_request = os.pipe()
        answers, send_answer = os.pipe()
        limit = self._plan.limits.output_bytes
        self._make_scratch()
        guest_ends = (requests, send_answer, program)
        self._fork(guest_ends, lambda kept: guest.main(kept, limit), control, scratch=True)
        checker_ends = (answers, send_request, tests, verdict)
        self._fork(checker_ends, lambda kept: checker.main(kept, limit), control, scratch=False)
        for descriptor in {*guest_ends, *checker_ends}:
            os.close(descriptor)
        self._reap()

    def _fork(
        self,
        keep: Sequence[int],
        body: Callable[[Sequence[int]], None],
        control: socket.socket,
        *,
        scratch: bool,
    ) -> None:
        pid = self._namespaces.fork() if self._namespaces else os.fork()
        if pid:
            self._running.append(pid)
            return
        try:
            gc.enable()
            control.detach()  # its number is used for something else from here on
            body(confine(self._plan, keep, scratch=scratch))
        finally:
            # Without `atexit` hooks, and without a traceback to the caller's terminal.
            os._exit(0)

    def end(self) -> list[dict[str, Any]]:
        """Kills both processes with all that they have started; returns how each had ended."""
        ended = []
        self._kill()
        for pid in self._running:
            _, status, used = os.wait4(pid, 0)
            signalled = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
            ended.append({"signal": signalled, "cpu_seconds": used.ru_utime + used.ru_stime})
        self._running = []
        if not self._namespaces:
            processes.kill_descendants(self.user)
            processes.remove_folder(self._scratch)
        return ended

    def drop(self) -> None:
        """Kills both processes without waiting for their end, where the next pair can do without.

        In namespaces of their own they share nothing with the next pair.
        """
        if not self._namespaces:
            self.end()
            return
        self._kill()
        self._dying += self._running
        self._running = []

    def close(self) -> None:
        """Ends what still runs, and removes the folder of this supervisor."""
        self.end()
        if not self._namespaces:
            processes.remove_folder(self._home)

    def _kill(self) -> None:
        for pid in self._running:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
            if not self._namespaces:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)

    def _reap(self) -> None:
        self._dying = [pid for pid in self._dying if not os.waitpid(pid, os.WNOHANG)[0]]

    def _make_scratch(self) -> None:
        if self._namespaces:
            return
        os.mkdir(self._scratch, 0o700)
        if self.user is not None:
            os.chown(self._scratch, self.user, self.user)


def serve(control: socket.socket, settings: dict[str, Any]) -> None:
    """Follows the caller's orders until it closes the connection; then ends what still runs."""
    supervisor = None
    try:
        supervisor = Supervisor(settings)
        answer: dict[str, Any] = {"user": supervisor.user}
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()}
    control.sendall(json.dumps(answer).encode() + b"\n")
    while supervisor:
        try:
            order, descriptors, _, _ = socket.recv_fds(control, 1, 3)
        except ConnectionError:
            order = b""
        if order == START:
            supervisor.start(control, *descriptors)
        elif order == END:
            control.sendall(json.dumps(supervisor.end()).encode() + b"\n")
        elif order == DROP:
            supervisor.drop()
        else:
            supervisor.close()
            break


def main() -> None:
    """Serves the connection and the settings that `workers.py` has passed."""
    settings = json.loads(sys.argv[1])
    # Folders that are added for development, such as a checkout, are nothing to a program.
    inner = tuple(f"{prefix}/" for prefix in (sys.prefix, sys.base_prefix))
    own = [path for path in sys.path if path.endswith("-packages") or path.startswith(inner)]
    sys.path[:] = [*own, *(path for path in settings["packages"] if path not in own)]
    serve(socket.socket(fileno=int(sys.argv[2])), settings)
