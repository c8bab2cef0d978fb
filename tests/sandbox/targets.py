"""What attacks aim at: files, sockets and a process, made for one test run and checked after it."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

#: In the caller's environment while programs run.
SECRET_VARIABLE = "LMEVAL_TEST_SECRET"


class Targets:
    """Files and sockets that any user may reach, so that only the sandbox protects them."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="lm-eval-targets-"))
        self.home = self.folder / "home"
        self.open = self.folder / "open"
        for folder, mode in ((self.folder, 0o755), (self.home, 0o755), (self.open, 0o777)):
            folder.mkdir(exist_ok=True)
            folder.chmod(mode)
        (self.home / "secret").write_text("secret")
        for name in ("victim", "victim2", "victim4"):
            (self.open / name).write_text("untouched")
            (self.open / name).chmod(0o666)
        self.abstract = f"lm-eval-{os.getpid()}-{id(self)}"
        self._sockets = [
            _listening(socket.AF_INET, ("127.0.0.1", 0)),
            _listening(socket.AF_INET6, ("::1", 0)),
            _listening(socket.AF_UNIX, str(self.home / "socket")),
            _listening(socket.AF_UNIX, f"\0{self.abstract}"),
        ]
        datagrams = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        datagrams.bind(str(self.home / "datagrams"))
        self._sockets.append(datagrams)
        for name in ("socket", "datagrams"):
            (self.home / name).chmod(0o666)
        self.process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        self._listing = self._files()

    def fill_in(self, code: str) -> str:
        """Returns an attack with its targets in the places of their names."""
        values = {
            "home": self.home,
            "open": self.open,
            "abstract": self.abstract,
            "port": self._sockets[0].getsockname()[1],
            "port6": self._sockets[1].getsockname()[1],
            "process": self.process.pid,
        }
        for name, value in values.items():
            code = code.replace(f"{{{name}}}", str(value))
        return code

    def assert_untouched(self) -> None:
        """Fails if an attack has changed something."""
        assert self._files() == self._listing
        assert self.process.poll() is None

    def _files(self) -> dict[str, tuple[str, int]]:
        files = [path for path in self.folder.rglob("*") if path.is_file()]
        return {str(path): (path.read_text(), path.stat().st_mode) for path in files}

    def close(self) -> None:
        """Removes everything."""
        self.process.kill()
        self.process.wait()
        for each in self._sockets:
            each.close()
        shutil.rmtree(self.folder)


def _listening(family: int, address: object) -> socket.socket:
    made = socket.socket(family)
    made.bind(address)
    made.listen(100)
    return made
