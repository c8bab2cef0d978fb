"""Keeps keys out of what servers reply: messages, logs, stored answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from lm_eval.models.served.transport import Reply

#: Headers that contain no key.
_HARMLESS = re.compile(r"accept(-.*)?|content-type|user-agent|connection|cache-control", re.I)
#: Words in the value of a header that are not secret themselves.
_SCHEMES = {"bearer", "basic", "digest", "token", "apikey", "key"}
#: Shorter secrets are not looked for: they are placeholders, and occur by chance.
_SHORTEST = 4
#: In successful replies only secrets of this length are replaced, because a placeholder such as
#: "no-key-needed" may be part of an answer.
_SHORTEST_IN_ANSWERS = 16


def credentials(headers: Mapping[str, str]) -> list[str]:
    """Returns the secret words in the values of HTTP headers."""
    words = [
        word
        for name, value in headers.items()
        if not _HARMLESS.fullmatch(str(name))
        for word in re.split(r"[\s;,=]+", str(value))
    ]
    return [word for word in words if word.lower() not in _SCHEMES]


class Redaction:
    """Replaces secrets by `***`."""

    def __init__(self, secrets: Iterable[str]) -> None:
        """Takes the secrets; very short ones are ignored."""
        found = {secret for secret in secrets if len(secret) >= _SHORTEST}
        # Servers return them in JSON, in which some characters are written differently.
        escaped = {json.dumps(secret)[1:-1] for secret in found}
        escaped |= {secret.replace("/", r"\/") for secret in found}
        self._secrets = sorted(found | escaped, key=len, reverse=True)
        self._bytes = [secret.encode() for secret in self._secrets]

    def text(self, text: str) -> str:
        """Returns a message without secrets."""
        for secret in self._secrets:
            text = text.replace(secret, "***")
        return text

    def reply(self, reply: Reply) -> Reply:
        """Returns a reply without secrets in its body, before any of it is cut off or logged."""
        shortest = _SHORTEST_IN_ANSWERS if reply.ok else _SHORTEST
        found = [s for s in self._bytes if len(s) >= shortest and s in reply.body]
        if not found:
            return reply
        body = reply.body
        for secret in found:
            body = body.replace(secret, b"***")
        return replace(reply, body=body)
