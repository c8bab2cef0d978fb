"""Starts servers as processes on the loopback interface, and sends requests to them."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

START_SECONDS = 600
"""How long a server may take to start; much more than it takes on an idle machine."""
REPLY_SECONDS = 300
STOP_SECONDS = 20


@dataclass(frozen=True)
class Reply:
    """The answer to one HTTP request: the body as JSON, or as text if it is not JSON."""

    status: int
    body: Any

    @property
    def choice(self) -> Any:
        """The only choice of a completion."""
        (choice,) = self.body["choices"]
        return choice


@dataclass(frozen=True)
class Server:
    """A running server."""

    url: str
    """Without a path and without a slash at the end."""
    model: str
    """The name of the model in requests."""
    folder: Path
    """The served model as a Hugging Face folder."""
    log: Path
    """What the server has printed."""

    def get(self, path: str) -> Reply:
        """Returns the reply to a GET request."""
        return _reply(urllib.request.Request(self.url + path))

    def post(self, path: str, **body: Any) -> Reply:
        """Returns the reply to a POST request with a JSON body, which names the model."""
        data = json.dumps({"model": self.model, **body}).encode()
        headers = {"Content-Type": "application/json"}
        return _reply(urllib.request.Request(self.url + path, data=data, headers=headers))

    def complete(self, prompt: Any, **body: Any) -> Reply:
        """Returns the reply to a request for a completion, greedy unless `body` says otherwise."""
        return self.post("/v1/completions", prompt=prompt, **{"temperature": 0, **body})

    def chat(self, *contents: str, **body: Any) -> Reply:
        """Returns the reply to a conversation whose turns alternate, the user's first."""
        roles = ("user", "assistant")
        messages = [
            {"role": roles[index % 2], "content": content} for index, content in enumerate(contents)
        ]
        return self.post("/v1/chat/completions", messages=messages, **{"temperature": 0, **body})


def _reply(request: urllib.request.Request) -> Reply:
    try:
        with urllib.request.urlopen(request, timeout=REPLY_SECONDS) as response:
            status, text = response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            status, text = error.code, error.read().decode()
    try:
        return Reply(status, json.loads(text))
    except json.JSONDecodeError:
        return Reply(status, text)


def free_port() -> int:
    """Returns a port of the loopback interface that no process uses now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


@contextmanager
def running(
    command: Sequence[str | Path],
    *,
    port: int,
    health: str,
    work: Path,
    variables: Mapping[str, str],
) -> Iterator[tuple[str, Path]]:
    """Runs a server as long as the context lasts; gives its address and the path of its log.

    Args:
        command: the program and its arguments, which make it listen on `port`.
        port: a port of 127.0.0.1.
        health: a path that answers with status 200 once the server is ready.
        work: the working directory, where the log is written. It is not the checkout: Python
            programs would import packages from there.
        variables: environment variables in addition to those of this process.
    """
    url, log = f"http://127.0.0.1:{port}", work / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(word) for word in command],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            cwd=work,
            env={**os.environ, **variables},
            start_new_session=True,
        )
    try:
        _wait_until_healthy(process, url + health, log)
        yield url, log
    finally:
        _stop(process)


def _wait_until_healthy(process: subprocess.Popen[bytes], address: str, log: Path) -> None:
    """Returns once the address answers; raises RuntimeError if the server ends or is too slow."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"The server ended with exit code {process.returncode}.{_end(log)}")
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"The server was not ready after {START_SECONDS} seconds.{_end(log)}")


def _end(log: Path) -> str:
    """Returns the last lines of a log, for an error message."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-40:]
    return "\n".join([f" The end of its log, {log}:", *lines])


def _stop(process: subprocess.Popen[bytes]) -> None:
    """Ends a server and the processes that it has started, which are in its process group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            continue
    process.wait()
