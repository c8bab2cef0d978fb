"""The addresses of a server: its root, and the paths below it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

from lm_eval.errors import ConfigError

#: Paths that a `base_url` may end with, longest first.
_KNOWN_PATHS = (
    "/v1/chat/completions",
    "/chat/completions",
    "/v1/completions",
    "/completions",
    "/v1/messages",
    "/v1/complete",
    "/completion",
    "/generate",
    "/v1",
)


@dataclass(frozen=True)
class Endpoint:
    """Where a server is.

    Attributes:
        root: the address that the paths of an API are appended to, without a slash at the end.
        given: the full address of requests, if `base_url` contained it; None if it was a root.
    """

    root: str
    given: str | None = None

    @classmethod
    def parse(cls, base_url: str | None, backend: str) -> Endpoint:
        """Returns the endpoint of a `base_url`: a root, a root with `/v1`, or a full address.

        Raises `ConfigError` if it is missing, is not an HTTP address, or contains a password.
        """
        if not base_url:
            raise ConfigError(
                f"the model {backend!r} needs the address of a server: pass "
                "--model_args base_url=http://localhost:8000."
            )
        parts = urlsplit(base_url.strip())
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(
                f"base_url: {base_url!r} is not an address such as http://localhost:8000."
            )
        if parts.username or parts.password:
            raise ConfigError(
                "base_url: pass a user name and password with header=…, not in the address, which "
                "is written to the results."
            )
        path = parts.path.rstrip("/")
        found = _known_path(path)
        root = urlunsplit((parts.scheme, parts.netloc, path.removesuffix(found), "", ""))
        if found in ("", "/v1"):
            return cls(root)
        return cls(root, urlunsplit((parts.scheme, parts.netloc, path, parts.query, "")))

    def url(self, path: str) -> str:
        """Returns the address of a path such as `/v1/completions`.

        That is the full address which was given as `base_url`, if it has this path; else the root
        with the path appended.
        """
        given = "" if self.given is None else _known_path(urlsplit(self.given).path)
        if self.given is not None and given.removeprefix("/v1") == path.removeprefix("/v1"):
            return self.given
        return self.root + path


def _known_path(path: str) -> str:
    """Returns which of `_KNOWN_PATHS`, those of APIs, `path` ends with; "" if there is none."""
    return next((known for known in _KNOWN_PATHS if path.endswith(known)), "")
