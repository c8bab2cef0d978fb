"""The server of `lm-eval view`: a few pages for this machine, and nothing else.

It listens on the loopback address alone. The address of every page begins with a random token, so
that other users of the machine and pages of other sites cannot guess it, and the `Host` of a
request must be the loopback address, so that no other name can be made to lead here.
"""

from __future__ import annotations

import json
import re
import secrets
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from lm_eval._version import __version__
from lm_eval.errors import ConfigError
from lm_eval.report.page import security_policy
from lm_eval.viewer.catalog import Catalog

HOST = "127.0.0.1"
_RUN = re.compile(r"run/(?P<ids>[0-9a-f]{12}(?:\+[0-9a-f]{12}){0,11})/(?P<what>progress)?")
#: Seconds that a client may take to send its request.
_TIMEOUT = 10


class ViewServer(ThreadingHTTPServer):
    """Serves a catalog of runs. `address` is where to open it."""

    daemon_threads = True

    def __init__(self, catalog: Catalog, port: int = 0) -> None:
        """Binds the port, or a free one if it is 0; raises `ConfigError` if that fails."""
        self.catalog = catalog
        self.token = secrets.token_urlsafe(16)
        try:
            super().__init__((HOST, port), _Handler)
        except (OSError, OverflowError) as error:
            raise ConfigError(
                f"port {port}: cannot be used ({error}). Give another --port, or none."
            ) from error
        self.names = {f"{name}:{self.server_port}" for name in (HOST, "localhost")}

    @property
    def address(self) -> str:
        """The address of the list of runs."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD for the pages below the token; refuses everything else."""

    server: ViewServer
    server_version = f"lm_eval/{__version__}"
    sys_version = ""
    protocol_version = "HTTP/1.1"
    timeout = _TIMEOUT

    def do_GET(self) -> None:
        """Sends a page, or the progress of runs as JSON."""
        self._answer()

    def do_HEAD(self) -> None:
        """Sends the headers of the same answer."""
        self._answer()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):  # any other method
            return self._refuse_method
        raise AttributeError(name)

    def _refuse_method(self) -> None:
        self.close_connection = True  # the body of the request is not read
        self._send(HTTPStatus.METHOD_NOT_ALLOWED, b"Only GET is allowed.\n", "text/plain")

    def _answer(self) -> None:
        if self.headers.get("Host", "") not in self.server.names:
            self._send(HTTPStatus.FORBIDDEN, b"This name does not lead here.\n", "text/plain")
            return
        if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
            self._send(HTTPStatus.FORBIDDEN, b"Other sites have no access.\n", "text/plain")
            return
        _, token, *rest = self.path.split("/", 2) if self.path.startswith("/") else ("", "", "")
        if not secrets.compare_digest(token.encode(), self.server.token.encode()) or not rest:
            self._send(HTTPStatus.NOT_FOUND, b"There is no such page.\n", "text/plain")
            return
        self._send_page(rest[0])

    def _send_page(self, path: str) -> None:
        """Sends what is at a path below the token."""
        catalog = self.server.catalog
        if path == "":
            self._send(HTTPStatus.OK, catalog.list_page(), "text/html")
            return
        if path == "progress":
            self._send_json(catalog.progress(catalog.entries()))
            return
        found = _RUN.fullmatch(path)
        entries = None if found is None else catalog.choose(found["ids"].split("+"))
        if found is None or entries is None:
            self._send(HTTPStatus.NOT_FOUND, b"There is no such page.\n", "text/plain")
        elif found["what"]:
            self._send_json(catalog.progress(entries))
        else:
            self._send(HTTPStatus.OK, catalog.run_page(entries), "text/html")

    def _send_json(self, content: Any) -> None:
        self._send(HTTPStatus.OK, json.dumps(content).encode(), "application/json")

    def _send(self, status: HTTPStatus, body: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", security_policy("'self'"))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("X-Frame-Options", "DENY")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Cross-Origin-Opener-Policy", "same-origin")
        self.send_header("Cache-Control", "no-store")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            try:
                self.wfile.write(body)
            except (BrokenPipeError, ConnectionResetError):  # the page was closed
                self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Logs nothing: the address of a page contains the token."""
