"""Sends single HTTP requests with aiohttp, over pooled connections."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from lm_eval.errors import ConfigError

if TYPE_CHECKING:
    import aiohttp

#: Errors of a reply's headers or body are shown up to this length.
MAX_SHOWN = 300
#: Seconds until an attempt to connect is given up.
CONNECT_SECONDS = 30.0


#: Redirects are not followed: they may turn a POST into a GET, or send a key to another host.
_AS_IT_IS: dict[str, Any] = {"allow_redirects": False}


class UnreachableError(Exception):
    """No connection to the server could be made: it is down, or the address is wrong."""


class BrokenReplyError(Exception):
    """The connection was closed, or the reply was incomplete or not what the protocol allows."""


class TimedOutError(Exception):
    """The server did not reply in time."""


@dataclass(frozen=True)
class Reply:
    """The reply to one HTTP request."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the status is a success (2xx)."""
        return 200 <= self.status < 300

    def text(self) -> str:
        """Returns the body as text, for messages: on one line, and at most `MAX_SHOWN` long."""
        text = " ".join(self.body.decode("utf-8", "replace").split())
        return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}…"


class Transport(Protocol):
    """Sends requests to a server. Used inside one event loop, as an asynchronous context manager.

    A transport raises `UnreachableError`, `BrokenReplyError` or `TimedOutError`. It returns a reply
    of any status and never raises because of one. Error messages contain no headers, because those
    contain keys.
    """

    async def __aenter__(self) -> Transport: ...

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...

    async def post(self, url: str, body: bytes, fresh: bool = False) -> Reply:
        """Returns the reply to a POST request with a JSON body.

        `fresh` asks for a new connection. Retries do so: behind an open one there may be a worker
        of the server that always fails.
        """

    async def get(self, url: str) -> Reply:
        """Returns the reply to a GET request."""


@dataclass(frozen=True)
class HttpSettings:
    """The settings of an `HttpTransport`.

    Attributes:
        headers: sent with every request, such as the key. Never shown in `repr`.
        timeout: seconds until a request without a complete reply is given up.
        verify_certificate: whether the server's TLS certificate is verified.
        ca_cert_path: a file with certificates that are trusted in addition to the system's.
    """

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: float = 300.0
    verify_certificate: bool = True
    ca_cert_path: str | None = None


class HttpTransport:
    """A `Transport` over HTTP, with one pool of connections that are kept open between requests."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings

    async def __aenter__(self) -> HttpTransport:
        import aiohttp

        self._aiohttp: Any = aiohttp
        headers = {"Content-Type": "application/json", **self._settings.headers}
        kept_open: tuple[dict[str, Any], ...] = ({"keepalive_timeout": 30}, {"force_close": True})
        self._sessions = {
            (use_proxy, fresh): aiohttp.ClientSession(
                # The number of connections is bounded by the number of requests in flight.
                connector=aiohttp.TCPConnector(limit=0, ssl=self._ssl(), **kept_open[fresh]),
                headers=headers,
                timeout=aiohttp.ClientTimeout(
                    total=self._settings.timeout, sock_connect=CONNECT_SECONDS
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
                trust_env=use_proxy,
            )
            for use_proxy in (False, True)
            for fresh in (False, True)
        }
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for session in self._sessions.values():
            await session.close()

    def _ssl(self) -> Any:
        """Returns the `ssl` argument of a connector: whether to verify certificates, or a context.

        It is a context if `ca_cert_path` is set; raises `ConfigError` if that file cannot be read.
        """
        if not self._settings.verify_certificate:
            return False
        if self._settings.ca_cert_path is None:
            return True
        try:
            return ssl.create_default_context(cafile=self._settings.ca_cert_path)
        except OSError as error:
            raise ConfigError(
                f"ca_cert_path: the certificates in {self._settings.ca_cert_path} cannot be read "
                f"({error})."
            ) from error

    def _session_for(self, url: str, fresh: bool = False) -> aiohttp.ClientSession:
        """Returns the session for a URL; proxies of the environment are not used for loopback.

        `fresh` chooses a session that opens a new connection for each request.
        """
        return self._sessions[not is_local(url), fresh]

    async def post(self, url: str, body: bytes, fresh: bool = False) -> Reply:
        return await self._send(self._session_for(url, fresh).post(url, data=body, **_AS_IT_IS))

    async def get(self, url: str) -> Reply:
        return await self._send(self._session_for(url).get(url, **_AS_IT_IS))

    async def _send(self, request: Any) -> Reply:
        aiohttp = self._aiohttp
        # `from None`: the repr of aiohttp's errors can contain the headers of the request.
        try:
            async with request as response:
                return Reply(response.status, await response.read(), response.headers)
        except aiohttp.ServerTimeoutError:  # a subclass of TimeoutError
            raise UnreachableError(f"no connection within {CONNECT_SECONDS:g} s") from None
        except asyncio.TimeoutError:
            raise TimedOutError(f"no reply within {self._settings.timeout:g} s") from None
        except aiohttp.ClientConnectorCertificateError as error:
            raise ConfigError(
                f"the TLS certificate of {error.host} is not trusted. Pass ca_cert_path=FILE with "
                "the certificate of its authority, or verify_certificate=False."
            ) from None
        except (aiohttp.ClientConnectorError, aiohttp.InvalidURL) as error:
            raise UnreachableError(_described(error)) from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise BrokenReplyError(_described(error)) from None


def is_local(url: str) -> bool:
    """Returns whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    return host in ("localhost", "::1") or host.startswith("127.")


def _described(error: Exception) -> str:
    """Returns the type of an error and its own words, which contain no headers."""
    words = str(getattr(error, "strerror", None) or getattr(error, "message", None) or "")
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
