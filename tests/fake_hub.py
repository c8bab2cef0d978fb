"""A local HTTP server that imitates the Hugging Face hub with one dataset, for tests."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CARD = b"""\
---
configs:
- config_name: default
  data_files: [{split: test, path: test.parquet}]
---
"""


class _Answers(BaseHTTPRequestHandler):
    """The request handler: `org/things` exists, `org/gated` is gated, nothing else exists."""

    files: dict[str, bytes]

    def do_HEAD(self) -> None:
        path, _, _ = self.path.partition("?")
        if path in ("", "/"):
            return self._send(200)
        if "org/gated" in path:
            return self._refuse(403, "GatedRepo")
        if "org/things" not in path:
            return self._refuse(404, "RepoNotFound")
        file = re.fullmatch(r"/datasets/org/things/resolve/([^/]+)/(.+)", path)
        if file and file[1] not in ("main", "v1", COMMIT):
            return self._refuse(404, "RevisionNotFound")
        if file and file[2] not in self.files:
            return self._refuse(404, "EntryNotFound")
        if file:
            return self._send(200, self.files[file[2]])
        listed = [
            {"type": "file", "path": name, "size": len(content), "oid": _digest(content)}
            for name, content in self.files.items()
        ]
        about = {"id": "org/things", "sha": COMMIT, "siblings": [], "private": False}
        return self._send(200, json.dumps(listed if "/tree/" in path else about).encode())

    do_GET = do_HEAD  # noqa: N815

    def _refuse(self, status: int, code: str) -> None:
        self._send(status, b"", {"X-Error-Code": code, "X-Error-Message": code})

    def _send(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        sent = {"ETag": f'"{_digest(body)}"', "X-Repo-Commit": COMMIT, **(headers or {})}
        for name, value in {**sent, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Logs nothing."""


def _digest(content: bytes) -> str:
    return hashlib.sha1(content).hexdigest()


@contextmanager
def fake_hub(parquet: Path) -> Iterator[str]:
    """Yields the URL of a hub whose dataset `org/things` has one split, `test`: `parquet`."""
    files = {"README.md": CARD, "test.parquet": parquet.read_bytes()}
    handler = type("Answers", (_Answers,), {"files": files})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
