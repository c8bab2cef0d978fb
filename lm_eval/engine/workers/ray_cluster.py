"""Workers as Ray actors, on this machine or on a cluster. The only module that imports Ray.

An actor (`_Relay`) starts the same process as `ProcessPool` on its machine, with the devices that
Ray has given it, and passes messages on. The model so runs in the main thread of its process, and
the driver learns how the process ended. Ray restarts nothing by itself: the crew replaces workers.
"""

from __future__ import annotations

import logging
import math
import os
import pickle
import re
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from lm_eval.engine.workers.child import END_SECONDS, Child
from lm_eval.engine.workers.messages import Ended, Message, Placed, Start, Stop
from lm_eval.engine.workers.pool import WorkerPool
from lm_eval.errors import ConfigError, ModelError, describe_cause
from lm_eval.extras import install_command

logger = logging.getLogger(__name__)

#: How long a relay waits for messages of its process before it replies with none, in seconds.
TAKE_SECONDS = 20.0
#: How long a relay collects messages before it replies, so that one reply has many.
COLLECT_SECONDS = 0.005
#: How long to try to reach a cluster, in seconds.
CONNECT_SECONDS = 10.0
#: How often the resources of the cluster are read, in seconds.
RESOURCES_SECONDS = 2.0
#: How long a machine may be out of reach before its workers count as lost, in seconds.
UNREACHABLE_SECONDS = 30.0


def check_installed() -> None:
    """Raises `ConfigError` if Ray is not installed."""
    _ray()


def _ray() -> Any:
    try:
        import ray
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"--executor ray needs the package 'ray', which is not installed: "
            f"{install_command('ray')}. Without it, --executor processes runs several workers on "
            "this machine."
        ) from error
    return ray


class _Relay:
    """The actor: passes messages between the driver and the process of a worker on this machine."""

    def __init__(self, start: bytes) -> None:
        """Starts the process; `start` is its first message."""
        self._arrived = threading.Condition()
        self._messages: list[bytes] = []
        self._first = 0  # the number of the first of the messages that are kept
        self._how: str | None = None
        self._early: dict[int, bytes] = {}
        self._sent = 0  # the number of the next message to the process
        self._child = Child({"TQDM_DISABLE": "1"}, self._received, self._ended)
        self._child.send(start)

    def where(self) -> tuple[str, str, int]:
        """Returns the machine, its number in the cluster, and the id of the process."""
        context = _ray().get_runtime_context()
        return socket.gethostname(), context.get_node_id(), self._child.pid

    def send(self, number: int, message: bytes) -> None:
        """Passes a message to the process; messages are passed on in the order of their numbers.

        Several threads execute the calls of an actor, in any order. A message may come twice.
        """
        with self._arrived:
            if number >= self._sent:
                self._early[number] = message
            while (following := self._early.pop(self._sent, None)) is not None:
                self._child.send(following)
                self._sent += 1

    def end(self, stop: bytes | None) -> None:
        """Ends the process and those that it has started; waits a while if it gets a message."""
        if stop is not None:
            self._child.send(stop)
            self._child.wait(END_SECONDS)
        self._child.stop()

    def take(self, received: int) -> tuple[list[bytes], str | None, int]:
        """Returns the messages after the first `received` ones, and how the process ended.

        The third value is the number of messages that were passed on to the process.

        Waits for messages, and returns none after a while. Messages are kept until the driver
        tells by `received` that it has them, so that nothing is lost with a reply.
        """
        with self._arrived:
            del self._messages[: received - self._first]
            self._first = received
            if not self._messages and self._how is None:
                self._arrived.wait(TAKE_SECONDS)
        if self._messages:
            time.sleep(COLLECT_SECONDS)
        with self._arrived:
            return list(self._messages), self._how, self._sent

    def _received(self, message: bytes) -> None:
        with self._arrived:
            self._messages.append(message)
            self._arrived.notify()

    def _ended(self, how: str) -> None:
        with self._arrived:
            self._how = how
            self._arrived.notify()


@dataclass(eq=False)
class _Actor:
    """A worker as the pool knows it."""

    handle: Any
    node: str | None = None
    received: int = 0
    """How many of its messages were read."""
    sent: int = 0
    """How many messages were sent to it."""
    unconfirmed: dict[int, bytes] = field(default_factory=dict)
    """The messages that it has not passed on yet, as far as is known."""
    unreachable_since: float | None = None

    def send(self, data: bytes) -> None:
        """Sends a message; if that fails, the next `take` fails as well."""
        self.unconfirmed[self.sent] = data
        self.handle.send.remote(self.sent, data)
        self.sent += 1

    def confirm(self, sent: int) -> None:
        """Forgets the first `sent` messages, which it has passed on."""
        for number in [number for number in self.unconfirmed if number < sent]:
            del self.unconfirmed[number]

    def send_again(self) -> None:
        """Sends all messages again that may have been lost while it was out of reach."""
        for number, data in self.unconfirmed.items():
            self.handle.send.remote(number, data)

    def place(self, node: str) -> None:
        """Notes on which machine the actor runs."""
        self.node = node

    def receive(self, messages: int) -> None:
        """Counts messages that were read."""
        self.received += messages
        self.unreachable_since = None

    def is_lost(self) -> bool:
        """Returns whether the machine has been out of reach for long; call it when it is so."""
        self.unreachable_since = self.unreachable_since or time.monotonic()
        return time.monotonic() - self.unreachable_since > UNREACHABLE_SECONDS


class RayPool(WorkerPool):
    """Starts each worker as an actor of a Ray cluster."""

    def __init__(
        self,
        start: Start,
        address: str | None,
        gpus: float | None = None,
        cpus: float | None = None,
    ) -> None:
        """Connects to the cluster, or starts one on this machine if there is no address.

        Args:
            start: the first message to each worker.
            address: `auto`, `ray://HOST:PORT` or `HOST:PORT`; None for a cluster of this machine.
            gpus: the GPUs of each worker; by default 1 if the cluster has any.
            cpus: the processors of each worker; by default 1.

        Raises `ModelError` if there is no cluster at the address, or Ray's versions differ.
        """
        self._ray = _ray()
        self._start = pickle.dumps(start, pickle.HIGHEST_PROTOCOL)
        self._was_connected = self._ray.is_initialized()
        self._connect(address)
        self._address = address
        self._resources_at, self._nodes = -math.inf, list[dict[str, Any]]()
        has_gpus = any(node["Resources"].get("GPU") for node in self._alive())
        self._gpus = float(has_gpus) if gpus is None else gpus
        self._cpus = 1.0 if cpus is None else cpus
        options = {"num_gpus": self._gpus, "num_cpus": self._cpus, "max_concurrency": 4}
        self._actor_class = self._ray.remote(_Relay).options(
            **options, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )
        self._actors: dict[int, _Actor] = {}
        self._refs: dict[Any, tuple[int, str]] = {}
        self._started = 0

    def _connect(self, address: str | None) -> None:
        if self._was_connected:
            return  # by the program that runs the evaluation
        where = "on this machine" if address is None else f"at {address!r}"
        if address is not None:
            _check_reachable(address)
        try:
            self._ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
                **({} if address is not None or os.environ.get("RAY_ADDRESS") else _LOCAL),
            )
        except ConnectionError as error:
            raise ModelError(
                f"there is no Ray cluster {where} ({_first_line(error)}). Start one with `ray "
                "start --head`, check --ray_address, or leave it out to start one on this machine."
            ) from error
        except (RuntimeError, ValueError, OSError, ImportError, self._ray.exceptions.RayError) as e:
            raise ModelError(
                f"the connection to the Ray cluster {where} failed: {_first_line(e)}. If versions "
                "differ, install the same Python and Ray on all machines."
            ) from e

    def start(self) -> int:
        self._started += 1
        actor = self._actors[self._started] = _Actor(self._actor_class.remote(self._start))
        self._refs[actor.handle.where.remote()] = (self._started, "where")
        return self._started

    def send(self, worker: int, message: object) -> None:
        actor = self._actors.get(worker)
        if actor is None:
            return
        actor.send(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def poll(self, timeout: float) -> Sequence[tuple[int, Message]]:
        refs = list(self._refs)
        if not refs:
            time.sleep(timeout)
            return []
        done, _ = self._ray.wait(refs, num_returns=1, timeout=timeout)
        if done and len(refs) > 1:  # those that are ready by now, too
            done, _ = self._ray.wait(refs, num_returns=len(refs), timeout=0)
        found: list[tuple[int, Message]] = []
        for ref in done:
            number, kind = self._refs.pop(ref)
            if number in self._actors:
                found += self._read(ref, number, kind)
        return found

    def _read(self, ref: Any, number: int, kind: str) -> list[tuple[int, Message]]:
        """Returns the messages in a reply of an actor, and asks it for more."""
        actor = self._actors[number]
        exceptions = self._ray.exceptions
        try:
            reply = self._ray.get(ref)
        except exceptions.ActorUnavailableError as error:
            if actor.is_lost():
                return self._lost(number, error)
            time.sleep(0.1)
            actor.send_again()
            self._ask(number, kind)
            return []
        except exceptions.RayError as error:
            return self._lost(number, error)
        if kind == "where":
            host, node, pid = reply
            actor.place(node)
            self._ask(number, "take")
            return [(number, Placed(f"{host}, process {pid}"))]
        messages, how, sent = reply
        actor.receive(len(messages))
        actor.confirm(sent)
        found: list[tuple[int, Message]] = [(number, pickle.loads(data)) for data in messages]
        if how is not None:
            self.stop(number)
            return [*found, (number, Ended(how))]
        self._ask(number, "take")
        return found

    def _ask(self, number: int, kind: str) -> None:
        actor = self._actors[number]
        arguments = () if kind == "where" else (actor.received,)
        self._refs[getattr(actor.handle, kind).remote(*arguments)] = (number, kind)

    def _lost(self, number: int, error: Exception) -> list[tuple[int, Message]]:
        """Returns the event of an actor that has ended."""
        actor = self._actors.pop(number)
        exceptions = self._ray.exceptions
        text = _first_line(error)
        if isinstance(error, (exceptions.RuntimeEnvSetupError, exceptions.RayTaskError)):
            return [(number, Ended(f"could not be started ({text})", fatal=True))]
        self._resources_at = -math.inf
        preempted = bool(getattr(error, "preempted", False))
        node_lost = actor.node is not None and all(
            node["NodeID"] != actor.node for node in self._alive()
        )
        if "node" in text.lower() and "died" in text.lower():
            node_lost = True
        if preempted or node_lost:
            return [(number, Ended("was lost with its machine", innocent=True))]
        reason = "had no memory left" if "OutOfMemory" in type(error).__name__ else "was killed"
        return [(number, Ended(f"{reason} ({text})"))]

    def stop(self, worker: int) -> None:
        actor = self._actors.pop(worker, None)
        if actor is not None:
            self._end([actor], None, 1.0)

    def _end(self, actors: Sequence[_Actor], stop: Stop | None, timeout: float) -> None:
        """Ends the processes of actors, then the actors; does not wait longer for the first."""
        data = None if stop is None else pickle.dumps(stop, pickle.HIGHEST_PROTOCOL)
        ends = [actor.handle.end.remote(data) for actor in actors if actor.node is not None]
        if ends:
            self._ray.wait(ends, num_returns=len(ends), timeout=timeout)
        for actor in actors:
            self._ray.kill(actor.handle, no_restart=True)

    def target(self) -> int:
        """Returns for how many workers the machines of the cluster have room."""
        return sum(self._room(node["Resources"]) for node in self._alive())

    def _room(self, resources: dict[str, float]) -> int:
        needed = {"GPU": self._gpus, "CPU": self._cpus}
        rooms = [resources.get(name, 0.0) / amount for name, amount in needed.items() if amount]
        return math.floor(min(rooms) + 1e-6) if rooms else 1

    def shortage(self) -> str:
        machines = [
            f"{node['NodeManagerHostname']} with {node['Resources'].get('CPU', 0):g} CPUs and "
            f"{node['Resources'].get('GPU', 0):g} GPUs"
            for node in self._alive()
        ]
        several = f"{len(machines)} machines: " if len(machines) > 1 else ""
        there = f"{several}{'; '.join(machines[:8])}" if machines else "no machine"
        return (
            f"Each worker needs {self._cpus:g} CPUs and {self._gpus:g} GPUs on one machine; the "
            f"cluster has {there}. Free or add machines, or give another --gpus_per_worker or "
            "--cpus_per_worker."
        )

    def _alive(self) -> list[dict[str, Any]]:
        """Returns the machines of the cluster; what is known of them is a little old."""
        if time.monotonic() - self._resources_at > RESOURCES_SECONDS:
            try:
                self._nodes = [node for node in self._ray.nodes() if node["Alive"]]
            except self._ray.exceptions.RayError as error:
                raise ModelError(
                    f"the Ray cluster is out of reach: {_first_line(error)}. Start it again and "
                    "run the same command to continue."
                ) from error
            self._resources_at = time.monotonic()
        return self._nodes

    def close(self) -> None:
        actors = list(self._actors.values())
        self._actors.clear()
        self._refs.clear()
        with suppress(self._ray.exceptions.RayError):  # the cluster is gone, and they with it
            self._end(actors, Stop(), END_SECONDS)
        if not self._was_connected and self._ray.is_initialized():
            self._ray.shutdown()


def _check_reachable(address: str) -> None:
    """Raises `ModelError` if nothing listens at `HOST:PORT` or `ray://HOST:PORT`.

    Ray itself would try for a minute or two. Other addresses are left to Ray.
    """
    found = re.fullmatch(r"(?:ray://)?([^/:\s]+):(\d{1,5})", address)
    if found is None:
        return
    try:
        socket.create_connection((found[1], int(found[2])), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise ModelError(
            f"there is no Ray cluster at {address!r} ({_first_line(error)}). Start one with `ray "
            "start --head`, check --ray_address, or leave it out to start one on this machine."
        ) from error


#: Settings of a cluster that is started for one run.
_LOCAL = {"include_dashboard": False}


def _first_line(error: BaseException) -> str:
    """Returns the first line of an error's text, which Ray makes long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else describe_cause(error)
