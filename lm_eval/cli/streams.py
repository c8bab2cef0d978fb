"""Standard output and error that may be closed or full while a command works.

What a command prints can be lost, but not what it does: a run whose table cannot be printed has
written its results.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any


def say(message: str) -> None:
    """Prints a message to stderr; does nothing if that is closed or full."""
    if sys.stderr is not None:
        with suppress(OSError, ValueError):
            print(message, file=sys.stderr, flush=True)


class LastingStream:
    """A text stream that ignores what it cannot write; all other attributes are the original's."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        #: The first error of writing; None as long as there is none.
        self.failure: OSError | ValueError | None = None

    def write(self, text: str) -> int:
        """Writes `text`; after a failure, does nothing. Returns its length."""
        if self.failure is None:
            try:
                self._stream.write(text)
            except (OSError, ValueError) as error:
                self.failure = error
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Writes all lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flushes the stream; after a failure, does nothing."""
        if self.failure is None:
            try:
                self._stream.flush()
            except (OSError, ValueError) as error:
                self.failure = error

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class Streams:
    """The standard output of a command."""

    def __init__(self, out: LastingStream) -> None:
        self._out = out

    def exit_code(self, code: int) -> int:
        """Returns `code`, or 2 with a message if the output could not be printed.

        A closed pipe (`| head`) is no error: its reader has seen enough.
        """
        failure = self._out.failure
        if failure is None or isinstance(failure, BrokenPipeError):
            return code
        reason = getattr(failure, "strerror", None) or failure
        say(
            f"lm-eval: error: the output could not be printed ({reason}). Files that the command "
            "wrote are complete. Print to another place."
        )
        return code or 2


@contextmanager
def lasting_streams() -> Iterator[Streams]:
    """Makes stdout and stderr ignore what they cannot write, inside the `with` block."""
    before = sys.stdout, sys.stderr
    _occupy_descriptors()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        # A closed stream (`>&-`) is None.
        out, err = (LastingStream(nowhere if one is None else one) for one in before)
        try:
            with redirect_stdout(out), redirect_stderr(err):
                yield Streams(out)
                out.flush()
        finally:
            for stream, lasting in zip(before, (out, err), strict=True):
                if lasting.failure is not None:
                    _discard(stream)


def _occupy_descriptors() -> None:
    """Opens the descriptors of closed standard streams.

    Otherwise the next file that is opened gets their number, and messages of libraries are written
    into it.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)


def _discard(stream: Any) -> None:
    """Redirects a stream to nowhere, so that Python does not fail to flush it when it exits."""
    with suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        stream.flush()
