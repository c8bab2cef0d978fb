"""Runs a script on a pseudo-terminal and returns what a user would see."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from dataclasses import dataclass
from functools import partial
from pathlib import Path


@dataclass
class Seen:
    """The output of a script on its terminal, and its exit code."""

    output: str
    code: int

    @property
    def drawings(self) -> list[str]:
        """Returns each text that was visible on a line at some time, in order."""
        parts = re.split(r"[\r\n]+", self.output.replace("\x1b[A", ""))
        return [part.rstrip() for part in parts if part.strip()]

    @property
    def screen(self) -> list[str]:
        """Returns the lines that are on the terminal at the end."""
        rows: list[list[str]] = [[]]
        row = column = 0
        for part in re.findall(r"\x1b\[A|\r|\n|[^\r\n\x1b]", self.output):
            if part == "\x1b[A":
                row -= 1
            elif part == "\r":
                column = 0
            elif part == "\n":  # the terminal has written \r before it
                row += 1
                rows += [[]] if row == len(rows) else []
            else:
                line = rows[row]
                line += " " * (column - len(line))
                line[column : column + 1] = part
                column += 1
        return [text for line in rows if (text := "".join(line).rstrip())]


def on_terminal(
    code: str, folder: Path, interrupt_at: str | None = None, **environment: str
) -> Seen:
    """Runs Python code on a terminal of 100 columns; sends Ctrl-C when `interrupt_at` appears."""
    script = folder / "script.py"
    script.write_text(code, encoding="utf-8")
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    process = subprocess.Popen(
        [sys.executable, str(script)],
        stdin=subprocess.DEVNULL,
        stdout=slave,
        stderr=slave,
        cwd=folder,
        env={**os.environ, **environment},
        # A shell that runs the tests in the background has them ignore interrupts.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    os.close(slave)
    output = b""
    while True:
        try:
            data = os.read(master, 1 << 16)
        except OSError:  # Linux says so when the last writer is gone
            break
        if not data:
            break
        output += data
        if interrupt_at is not None and interrupt_at.encode() in output:
            process.send_signal(signal.SIGINT)
            interrupt_at = None
    os.close(master)
    return Seen(output.decode(), process.wait())
