"""The `WorkerPool` interface: how workers are started, reached and ended."""

from __future__ import annotations

import abc
import time
from collections.abc import Sequence

from lm_eval.engine.workers.messages import Message


class WorkerPool(abc.ABC):
    """Starts workers and passes messages between them and the driver.

    A worker is named by a number that `start` returns; numbers are not used again. No method waits
    for a worker, except `poll`, which waits for any. All methods are called from one thread.
    """

    @abc.abstractmethod
    def start(self) -> int:
        """Starts another worker and returns its number.

        The pool then reports `Placed` when it has a place to run, the worker itself reports `Ready`
        or `Broken`, and the pool reports `Ended` when it is gone, for whatever reason.
        """

    @abc.abstractmethod
    def send(self, worker: int, message: object) -> None:
        """Sends a message to a worker; does nothing if it is gone."""

    @abc.abstractmethod
    def poll(self, timeout: float) -> Sequence[tuple[int, Message]]:
        """Returns what workers have sent, with their numbers; waits up to `timeout` seconds.

        The messages of one worker are in order.
        """

    @abc.abstractmethod
    def stop(self, worker: int) -> None:
        """Ends a worker. Nothing more is reported about it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends all workers and releases what the pool holds. May be called twice."""

    def target(self) -> int | None:
        """Returns how many workers there is room for now; None if that never changes."""
        return None

    def most_loading(self) -> int | None:
        """Returns how many workers may load the model at the same time; None for no limit."""
        return None

    def shortage(self) -> str:
        """Returns, as a sentence, what the workers need and what there is."""
        return ""

    def now(self) -> float:
        """Returns the time in seconds, from any start."""
        return time.monotonic()
