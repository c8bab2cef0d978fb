"""Several engines on this machine, each in a process of its own, that share the work of a run.

`EngineCopies` starts the processes (`worker.py`), deals the work out to them (`dealing.py`), and
yields results as they arrive. vLLM's own `LLM(data_parallel_size=N)` refuses to run in one process,
and its example for several runs the engines in lockstep, each with a fixed share of the prompts.
"""

from __future__ import annotations

import atexit
import itertools
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Literal

from lm_eval.api.usage import Usage
from lm_eval.engine.workers.child import describe_exit, start_process, wait_for_end
from lm_eval.errors import ConfigError, ModelError
from lm_eval.models.engines.dealing import Dealer, score_units
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
from lm_eval.models.planned.jobs import GenerationJob, Window, groups

#: The largest number of prompts to answer that are dealt out together.
JOBS_AT_ONCE = 8
#: How often processes are checked for having ended, in seconds.
CHECK_SECONDS = 1.0

_COMMAND = "from lm_eval.models.engines.worker import main; main({})"


class _Open:
    """The keys of the items of one `Work` message that a process has not finished yet."""

    def __init__(self, keys: Sequence[Any]) -> None:
        self._keys = keys
        self._left = len(keys)

    def take(self, place: int) -> Any:
        """Returns the key of the item at `place`, and counts it as finished."""
        self._left -= 1
        return self._keys[place]

    @property
    def is_done(self) -> bool:
        """Whether all items have their results."""
        return not self._left


@dataclass
class _Process:
    """The process of one engine; `open` is what it works on, by the number of the `Work`."""

    name: str
    process: subprocess.Popen[bytes]
    connection: Connection
    open: dict[int, _Open] = field(default_factory=dict)

    def send(self, message: Any) -> None:
        """Sends a message; raises the errors of `receive` if the process has ended."""
        try:
            self.connection.send(message)
        except OSError:
            while True:  # until the reason is found
                self.receive()

    def receive(self) -> Any:
        """Waits for the next message and returns it.

        Raises `ModelError` if the engine has failed or its process has ended, and `ConfigError` if
        its arguments are wrong.
        """
        try:
            # A process of the engine may keep the connection open after its parent has died.
            while not self.connection.poll(CHECK_SECONDS):
                if self.process.poll() is not None:
                    raise EOFError
            message = self.connection.recv()
        except (EOFError, OSError) as error:
            raise ModelError(f"{self.name} {self._how_it_ended()}") from error
        if isinstance(message, Failed):
            kind = ConfigError if message.is_config else ModelError
            raise kind(message.reason if message.is_config else f"{self.name}: {message.reason}")
        return message

    def take_results(self, message: Done) -> list[tuple[Any, Any]]:
        """Returns pairs (key of the item, its result); removes finished work from `open`.

        Results of a run that was given up are left out.
        """
        found = []
        for number, place, result in message.results:
            if (unit := self.open.get(number)) is None:
                continue
            found.append((unit.take(place), result))
            if unit.is_done:
                del self.open[number]
        return found

    def _how_it_ended(self) -> str:
        reason = describe_exit(wait_for_end(self.process))
        return f"{reason}; its log is above. Run the same command again to continue."


class EngineCopies:
    """Engines with the same model, one per process.

    Attributes:
        facts: what is known of each of the engines.
    """

    def __init__(
        self,
        engine: str,
        model: type,
        arguments: Mapping[str, Any],
        variables: Sequence[Mapping[str, str]],
    ) -> None:
        """Starts one process per item of `variables`; returns when all engines are loaded.

        Raises `ConfigError` or `ModelError` with the reason if one cannot be loaded.

        Args:
            engine: the name of the engine, for messages.
            model: the class of the model, a subclass of `EngineLM` that its module defines.
            arguments: those of its constructor.
            variables: environment variables of each process, such as the devices that it uses.
        """
        self._numbers = itertools.count()
        start = Start(f"{model.__module__}:{model.__qualname__}", dict(arguments))
        self._processes: list[_Process] = []
        atexit.register(self.close)
        try:
            for number, more in enumerate(variables, 1):
                name = f"{engine}, engine {number} of {len(variables)}"
                self._processes.append(_Process(name, *start_process(_COMMAND, more)))
            for one in self._processes:
                one.send(start)
            ready: dict[str, Ready] = {}
            while len(ready) < len(self._processes):
                for one in self._messages_from():
                    ready[one.name] = one.receive()
        except BaseException:
            self.close()
            raise
        self.facts: EngineFacts = next(iter(ready.values())).facts

    def scores(
        self, windows: Sequence[Window], usage: Usage
    ) -> Iterator[Sequence[tuple[int, Any]]]:
        """Yields lists of pairs (position in `windows`, score or `Failure`), as they are finished.

        A score is (log-likelihood, is_greedy). Adds the tokens that the engines used to `usage`.
        Raises `ModelError` if an engine fails.
        """
        units = [
            [(number, windows[number]) for number in unit]
            for unit in score_units(windows, self._receivers())
        ]
        yield from self._run("score", units, limit=2, usage=usage)

    def generate(
        self, jobs: Iterable[GenerationJob], usage: Usage
    ) -> Iterator[Sequence[tuple[GenerationJob, Any]]]:
        """Yields lists of pairs (job, its answers or a `Failure`), as they are finished.

        Adds the tokens that the engines used to `usage`. Raises `ModelError` if an engine fails.
        """
        pairs = [(job, job) for job in jobs]
        size = min(JOBS_AT_ONCE, max(1, len(pairs) // (4 * self._receivers())))
        # As many as an engine works on, and as many again that it can go on with.
        limit = max(2, 2 * self.facts.concurrent // size)
        yield from self._run("generate", groups(pairs, size), limit, usage)

    def counters(self) -> dict[str, float]:
        """Returns the counters of all engines, added up."""
        total: dict[str, float] = {}
        for one in self._processes:
            one.send(AskCounters())
            while not isinstance(message := one.receive(), Counters):
                pass  # results of a run that was given up
            for name, value in message.values.items():
                total[name] = total.get(name, 0.0) + value
        return total

    def close(self) -> None:
        """Ends all processes. May be called twice."""
        atexit.unregister(self.close)
        for one in self._processes:
            one.connection.close()  # the process notices it and ends
        for one in self._processes:
            wait_for_end(one.process)
        self._processes = []

    def _receivers(self) -> int:
        """Returns the number of processes; raises `ModelError` if they have ended."""
        if not self._processes:
            raise ModelError("the engines have ended; create the model again.")
        return len(self._processes)

    def _run(
        self,
        kind: Literal["score", "generate"],
        units: Sequence[Sequence[tuple[Any, Any]]],
        limit: int,
        usage: Usage,
    ) -> Iterator[list[tuple[Any, Any]]]:
        """Deals out units of `(key, item)`; yields lists of `(key, result)` as they arrive.

        `kind` says whether items are windows to score or jobs to answer. A process has at most
        `limit` units at a time. If one fails, all are ended and `ModelError` is raised.
        """
        dealer = Dealer(units, self._receivers())

        def fill(place: int) -> None:
            one = self._processes[place]
            while len(one.open) < limit and (unit := dealer.take(place)) is not None:
                number = next(self._numbers)
                one.open[number] = _Open([key for key, _ in unit])
                one.send(Work(number, kind, [item for _, item in unit]))

        try:
            for place, one in enumerate(self._processes):
                one.open.clear()  # of a run that was given up
                fill(place)
            while any(one.open for one in self._processes):
                for one in self._messages_from():
                    message = one.receive()
                    if not isinstance(message, Done):
                        continue
                    usage.add(message.usage)
                    results = one.take_results(message)
                    fill(self._processes.index(one))
                    if results:
                        yield results
        except ModelError:
            self.close()
            raise

    def _messages_from(self) -> list[_Process]:
        """Waits for processes that have sent something, or ended; returns them."""
        while True:
            ready = wait([one.connection for one in self._processes], CHECK_SECONDS)
            found = [
                one
                for one in self._processes
                if one.connection in ready or one.process.poll() is not None
            ]
            if found:
                return found
