"""The process of a worker: creates the model, answers portions and sends the answers back.

The model is wrapped in a host, a class that the driver names (`models/worker_host.py`), so that
this module knows nothing of models.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import pickle
import queue
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from lm_eval.api.context import RunContext
from lm_eval.api.instance import Instance
from lm_eval.api.usage import Usage
from lm_eval.engine.executor import Outcome, Report
from lm_eval.engine.workers.messages import (
    Answers,
    Broken,
    Call,
    Cancel,
    Finished,
    LogMessage,
    ModelFacts,
    Raised,
    Ready,
    Result,
    SetContext,
    Start,
    Stop,
    Work,
)
from lm_eval.errors import ConfigError, EvalError, describe_cause

_PR_SET_PDEATHSIG = 1
#: How often it is looked whether a worker has ended whose processes must end, in seconds.
GUARD_SECONDS = 0.5


class Host(Protocol):
    """Holds the model of a worker. The class is called with the settings of the run."""

    facts: ModelFacts

    def set_context(self, context: RunContext) -> None:
        """Passes the settings of a run to the model; called before its first portion."""

    def execute(
        self, kind: str, requests: Sequence[Instance], report: Report
    ) -> tuple[list[Outcome], Usage, Mapping[str, int]]:
        """Returns one outcome per request, and what was counted, as `Finished` has it.

        Outcomes are also passed to `report` as soon as they are known.
        """

    def call(self, method: str, arguments: tuple[Any, ...]) -> Any:
        """Calls a method of the model by its name."""


def main(descriptor: int) -> None:
    """Runs a worker until the connection with this file descriptor is closed."""
    connection = Connection(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver decides what ends with it
    if os.getpgrp() == os.getpid():
        _guard_group()
    _end_with_parent()
    _Worker(connection).run()


def _guard_group() -> None:
    """Starts a process that ends the group of this one when this one has ended.

    The kernel ends this process together with the driver, but not those that the model has started.
    """
    group = os.getpid()
    if os.fork():
        return
    os.setsid()
    os.closerange(0, 1024)  # such as the connection, whose end tells the driver that this one ended
    while os.getppid() == group:
        time.sleep(GUARD_SECONDS)
    with suppress(OSError):  # nothing is left of it
        os.killpg(group, signal.SIGKILL)
    os._exit(0)


def _end_with_parent() -> None:
    """Lets the kernel kill this process when its parent ends, on Linux.

    The connection is closed then too, but nothing may read it while the model computes.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _end_with_children() -> None:
    """Ends this process at once, with those that it has started if it leads their group."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class _Worker:
    """Passes portions from a connection to the host, and outcomes back."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._inbox: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._is_waiting = False
        self._send_lock = threading.Lock()

    def run(self) -> None:
        """Creates the model and does what arrives; returns when the driver needs no more."""
        start: Start = pickle.loads(self._connection.recv_bytes())
        threading.Thread(target=self._receive, daemon=True).start()
        self._forward_logs()
        try:
            if Path(start.directory).is_dir():
                os.chdir(start.directory)
            module, _, name = start.host.partition(":")
            host: Host = getattr(importlib.import_module(module), name)(start.settings)
        except BaseException as error:  # whatever a model class raises, also SystemExit
            self._send(Broken(_reason(error), isinstance(error, ConfigError)))
            sys.exit(1)
        self._send(Ready(host.facts))
        try:
            self._serve(host)
        except Exception as error:  # such as one of `set_run_context`
            self._send(Broken(_reason(error), isinstance(error, ConfigError)))
            sys.exit(1)

    def _serve(self, host: Host) -> None:
        while True:
            self._is_waiting = True
            message = self._inbox.get()
            self._is_waiting = False
            if isinstance(message, Stop):
                return
            if isinstance(message, Work):
                self._answer(host, message)
            elif isinstance(message, SetContext):
                host.set_context(
                    RunContext(message.seed, message.chat_template, message.think_end_token)
                )
            elif isinstance(message, Call):
                self._send(_result(host, message))

    def _answer(self, host: Host, work: Work) -> None:
        if work.number in self._cancelled:
            self._send(Finished(work.number, (), (), Usage(), cancelled=True))
            return
        reported: dict[int, Outcome] = {}

        def report(positions: Sequence[int], outcomes: Sequence[Outcome]) -> None:
            reported.update(zip(positions, outcomes, strict=True))
            self._send(Answers(work.number, list(positions), list(outcomes)))

        began = time.monotonic()
        try:
            outcomes, usage, totals = host.execute(work.kind, work.requests.instances(), report)
        except Exception as error:
            self._send(Raised(work.number, _reason(error), isinstance(error, ConfigError)))
            return
        missing = object()
        late = [i for i, one in enumerate(outcomes) if reported.get(i, missing) != one]
        seconds = time.monotonic() - began
        found = [outcomes[i] for i in late]
        self._send(Finished(work.number, late, found, usage, totals, seconds))

    def _send(self, message: object) -> None:
        """Sends a message; ends this process if the driver is gone."""
        data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        try:
            with self._send_lock:
                self._connection.send_bytes(data)
        except OSError:
            _end_with_children()

    def _receive(self) -> None:
        """Puts messages into the inbox as they come; cancellations overtake the others.

        Kills this process and those that it has started if the driver has ended, or if `Stop`
        arrives while the model works. A process whose model is idle exits normally after `Stop`.
        """
        try:
            while True:
                message = pickle.loads(self._connection.recv_bytes())
                if isinstance(message, Cancel):
                    self._cancelled.add(message.number)
                elif isinstance(message, Stop) and not (self._is_waiting and self._inbox.empty()):
                    break
                else:
                    self._inbox.put(message)
        except (EOFError, OSError):
            pass  # the driver has ended
        except Exception as error:  # a message that only other versions of the packages can read
            self._send(Broken(_reason(error), False))
        _end_with_children()

    def _forward_logs(self) -> None:
        """Sends log messages of this package to the driver instead of printing them here."""
        logger = logging.getLogger("lm_eval")
        logger.handlers = [_Forward(self._send)]
        logger.propagate = False
        logger.setLevel(logging.INFO)


class _Forward(logging.Handler):
    """Passes log messages to a function."""

    def __init__(self, send: Any) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        self._send(LogMessage(record.levelno, record.getMessage()))


def _result(host: Host, call: Call) -> Result:
    try:
        return Result(call.number, host.call(call.method, call.arguments))
    except Exception as error:
        return Result(call.number, None, _reason(error))


def _reason(error: BaseException) -> str:
    return str(error) if isinstance(error, EvalError) else describe_cause(error)
