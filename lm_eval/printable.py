"""Replaces control characters, so that texts of strangers cannot control a terminal.

A task name, an error message or a model's answer may contain escape sequences, which move the
cursor, rename the window or hide text when they are printed.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any, TextIO

#: Control characters without tab and line break, line separators, and characters that reverse the
#: direction of the text that follows.
_CONTROL = re.compile("[\0-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""Returns `text` with each control character as its code (`\u001b`); tabs and newlines stay.

    The codes are those of JSON, so JSON text still has the same content.
    """
    return _CONTROL.sub(_code, text)


def printable_line(text: str) -> str:
    """Returns `text` like `printable`, but on one line: line breaks become codes, too."""
    return printable(text).replace("\n", "\\n") if "\n" in text else printable(text)


def _code(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


class _PrintableStream(io.TextIOBase):
    """A text stream that writes what `printable` returns to another stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(printable(text))
        return len(text)

    def flush(self) -> None:
        self._stream.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return self._stream.isatty()

    def fileno(self) -> int:
        return self._stream.fileno()

    def close(self) -> None:
        """Does nothing: the stream behind it stays open."""

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the stream behind it."""
        return self._stream.encoding

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def printable_stdout(stream: TextIO | None) -> Iterator[None]:
    """Context manager in which all that is printed to `stream`, the standard output, is printable.

    None means that there is no standard output.
    """
    if stream is None:
        yield
        return
    with redirect_stdout(_PrintableStream(stream)):
        yield
