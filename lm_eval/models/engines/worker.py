"""The process of one of several engines: computes what `data_parallel.py` sends it."""

from __future__ import annotations

import importlib
import os
import queue
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from lm_eval.api.context import RunContext
from lm_eval.errors import ConfigError, EvalError, describe_cause
from lm_eval.models.engines.messages import (
    AskCounters,
    Counters,
    Done,
    EngineFacts,
    Failed,
    Ready,
    Start,
    Work,
)
from lm_eval.models.planned.jobs import GenerationJob


def main(descriptor: int) -> None:
    """Runs an engine until the connection with this file descriptor is closed."""
    connection = Connection(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the evaluation decides what ends with it
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        Worker(connection).run(connection.recv())
    except Exception as error:  # whatever the engine raises
        reason = str(error) if isinstance(error, EvalError) else describe_cause(error)
        with suppress(OSError):  # the evaluation may have ended
            connection.send(Failed(reason, isinstance(error, ConfigError)))
        sys.exit(1)


class Worker:
    """Passes work from a connection to an engine, and results back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._next: Any = None  # a message that was taken from the inbox too early

    def run(self, start: Start) -> None:
        """Creates the engine and does what arrives, until this process is terminated."""
        threading.Thread(target=self._receive, daemon=True).start()
        module, _, name = start.model.partition(":")
        lm = getattr(importlib.import_module(module), name)(**start.arguments)
        lm.set_run_context(RunContext())
        facts = EngineFacts(lm.max_length, lm.identity(), lm.abilities, lm.concurrent)
        self._connection.send(Ready(facts))
        while True:
            message, self._next = self._next or self._inbox.get(), None
            if isinstance(message, AskCounters):
                self._connection.send(Counters(lm.counters()))
            elif message.kind == "score":
                for scores in lm.scores(message.items):
                    self._finish(lm, [(message.number, place, score) for place, score in scores])
            else:
                self._generate(lm, message)

    def _receive(self) -> None:
        """Puts messages into the inbox as they come, so that the sender never has to wait."""
        try:
            while True:
                self._inbox.put(self._connection.recv())
        except (EOFError, OSError):  # the evaluation has ended
            os.kill(os.getpid(), signal.SIGTERM)

    def _generate(self, lm: Any, work: Work) -> None:
        """Generates answers to `work` and to what arrives meanwhile, and sends them back."""
        places: dict[int, tuple[int, int]] = {}

        def jobs() -> Iterator[GenerationJob | None]:
            arrived: Work | None = work
            while arrived is not None:
                for place, job in enumerate(arrived.items):
                    places[id(job)] = (arrived.number, place)
                    yield job
                while (arrived := self._more_to_generate()) is None and places:
                    yield None

        for batch in lm.answers(jobs()):
            self._finish(lm, [(*places.pop(id(job)), answers) for job, answers in batch])

    def _more_to_generate(self) -> Work | None:
        """Returns the first message of the inbox if it is work to generate, else None.

        Does not wait for one; another message stays in the inbox.
        """
        if self._next is None:
            with suppress(queue.Empty):
                self._next = self._inbox.get_nowait()
        if not isinstance(self._next, Work) or self._next.kind != "generate":
            return None
        work, self._next = self._next, None
        return work

    def _finish(self, lm: Any, results: list[tuple[int, int, Any]]) -> None:
        """Sends results (number of the work, position in it, result) with the tokens used.

        The tokens are those that were used since the last results.
        """
        self._connection.send(Done(results, lm.run_context.usage))
        lm.set_run_context(RunContext())
