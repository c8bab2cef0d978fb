"""Tests that programs leave nothing behind: no process, file, socket or shared memory."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lm_eval.sandbox import Limits, isolation
from lm_eval.sandbox.pool import run_all
from lm_eval.sandbox.processes import FIRST_OWN_USER, descendants
from lm_eval.sandbox.workers import SupervisorDiedError, Worker
from tests.sandbox.attacks import ATTACKS, TESTS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")

LIMITS = Limits(wall_seconds=0.5, cpu_seconds=2.0)
PROGRAMS = {
    **{
        name: ATTACKS[name].program.replace("{open}", "/nowhere")
        for name in (
            "start a daemon",
            "leave a process in a new session",
            "start processes that start processes",
            "start a thousand threads",
            "make a million files",
            "delete the scratch folder",
            "lock the scratch folder",
            "make names that are hard to remove",
            "write core files",
            "act after the verdict",
        )
    },
    "listen": (
        "import socket\ndef attack():\n"
        "    kept.append(socket.socket(socket.AF_UNIX))\n"
        "    kept[-1].bind('\\0lm-eval-leftover')\n    kept[-1].listen()\nkept = []"
    ),
    "share memory": (
        "import ctypes\ndef attack():\n"
        "    ctypes.CDLL(None).shmget(0x1e57, 4096, 0o1666)\n"
        "    open('/dev/shm/lm-eval-leftover', 'w').close()"
    ),
}


def own_processes() -> set[int]:
    """Returns the processes below this one, and those of this process's sandbox users."""
    found = descendants(os.getpid())
    first = FIRST_OWN_USER + os.getpid() * 64
    for path in Path("/proc").iterdir():
        try:
            if path.name.isdigit() and first <= path.stat().st_uid < first + 64:
                found.add(int(path.name))
        except OSError:
            continue
    return found


def machine_state() -> dict[str, object]:
    """Returns what a program could leave behind, as far as it differs from what others leave."""
    return {
        "processes": own_processes(),
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "folders": sorted(path.name for path in Path(tempfile.gettempdir()).iterdir()),
        "shared memory": Path("/dev/shm/lm-eval-leftover").exists(),
        "System V memory": "0x00001e57" in _ipc_keys(),
        "sockets": "@lm-eval-leftover" in Path("/proc/net/unix").read_text(),
        "mounts": len(Path("/proc/self/mounts").read_text().splitlines()),
    }


def _ipc_keys() -> list[str]:
    lines = Path("/proc/sysvipc/shm").read_text().splitlines()[1:]
    return [f"0x{int(line.split()[0]) & 0xFFFFFFFF:08x}" for line in lines]


@pytest.fixture
def temporary_folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A temporary folder of this test alone, which other users can reach."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        monkeypatch.setattr(tempfile, "tempdir", folder)
        yield folder


@pytest.mark.parametrize("level", ["strongest", "landlock+seccomp", "limits"])
def test_nothing_is_left_behind(level: str, temporary_folder: str) -> None:
    mechanisms = isolation().levels
    if level != "strongest":
        mechanisms = tuple(name for name in mechanisms if name in level)
    # Under limits alone a program may still write where its user may.
    names = [name for name in PROGRAMS if mechanisms or name != "share memory"]
    before = machine_state()
    verdicts = run_all([PROGRAMS[name] for name in names], [TESTS] * len(names), LIMITS, mechanisms)
    assert not any(verdict.passed for verdict in verdicts)
    assert machine_state() == before


@pytest.mark.parametrize("level", ["strongest", "limits"])
def test_a_killed_caller_leaves_nothing(level: str, temporary_folder: str) -> None:
    mechanisms = isolation().levels if level == "strongest" else ()
    script = (
        "from lm_eval.sandbox import Limits\nfrom lm_eval.sandbox.pool import run_all\n"
        f"run_all(['while True: pass'] * 4, [''] * 4, Limits(), {mechanisms!r}, workers=2)\n"
    )
    environment = {**os.environ, "TMPDIR": temporary_folder}
    caller = subprocess.Popen([sys.executable, "-c", script], env=environment)
    deadline = time.monotonic() + 30
    expected = 8 if "namespaces" in mechanisms else 6
    while time.monotonic() < deadline and len(descendants(caller.pid)) < expected:
        time.sleep(0.05)
    running = descendants(caller.pid)
    assert running
    caller.kill()
    caller.wait()
    while any(_is_alive(pid) for pid in running) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not [pid for pid in running if _is_alive(pid)]
    assert not list(Path(temporary_folder).iterdir())


def _is_alive(pid: int) -> bool:
    try:
        return b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def test_a_runner_that_is_killed_is_replaced(temporary_folder: str) -> None:
    worker = Worker(0, isolation().levels, LIMITS)
    running = descendants(worker._process.pid)
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()
    deadline = time.monotonic() + 20
    while any(_is_alive(pid) for pid in running) and time.monotonic() < deadline:
        time.sleep(0.01)  # they end with it, but not at the same moment
    with pytest.raises(SupervisorDiedError):
        worker.judge("x = 1", "assert x == 1")
    worker.close()
    assert not list(Path(temporary_folder).iterdir())
