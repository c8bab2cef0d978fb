"""The two pipes between a program and its tests: one message at a time, each with its length."""

from __future__ import annotations

import os
import struct

_HEADER = struct.Struct("<Q")


class ChannelClosedError(Exception):
    """The other side has ended, or has closed its pipes."""


class Channel:
    """One end of a pair of pipes.

    Args:
        incoming: the descriptor to read from.
        outgoing: the descriptor to write to.
        limit: the most bytes that an incoming message may have.
    """

    def __init__(self, incoming: int, outgoing: int, limit: int) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._limit = limit

    def send(self, message: bytes) -> None:
        """Writes one message."""
        data = memoryview(_HEADER.pack(len(message)) + message)
        try:
            while data:
                data = data[os.write(self._outgoing, data) :]
        except OSError as error:
            raise ChannelClosedError(str(error)) from None

    def receive(self) -> bytes:
        """Returns the next message."""
        (size,) = _HEADER.unpack(self._read(_HEADER.size))
        if size > self._limit:
            raise ChannelClosedError(f"a message of {size} bytes")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        parts = []
        try:
            while size:
                part = os.read(self._incoming, min(size, 1 << 20))
                if not part:
                    raise ChannelClosedError("closed")
                parts.append(part)
                size -= len(part)
        except OSError as error:
            raise ChannelClosedError(str(error)) from None
        return b"".join(parts)
