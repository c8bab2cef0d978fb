"""Replaces known secrets in text and bytes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import quote

from lm_eval.redaction.patterns import HIDDEN

__all__ = ["HIDDEN", "SHORTEST", "SHORTEST_IN_DATA", "Redactor", "credentials"]

#: Shorter secrets are not looked for in messages: they are placeholders, and occur by chance.
SHORTEST = 4
#: In answers and documents only secrets of this length are replaced, because a placeholder such as
#: "no-key-needed" may be part of a text.
SHORTEST_IN_DATA = 16

#: Headers that contain no key.
_HARMLESS = re.compile(r"accept(-.*)?|content-type|user-agent|connection|cache-control", re.I)
#: Words in the value of a header that are not secret themselves.
_SCHEMES = {"bearer", "basic", "digest", "token", "apikey", "key"}


def credentials(headers: Mapping[str, str]) -> list[str]:
    """Returns the secret words in the values of HTTP headers."""
    values = [value for name, value in headers.items() if not _HARMLESS.fullmatch(str(name))]
    return [word for value in values for word in secret_words(str(value))]


def secret_words(value: str) -> list[str]:
    """Returns the secret words in the value of a header: not `Bearer`, but what follows it."""
    return [word for word in re.split(r"[\s;,=]+", value) if word.lower() not in _SCHEMES]


class Redactor:
    """Replaces given secrets by `***`, also where they are escaped as in JSON or an address."""

    def __init__(self, secrets: Iterable[str], shortest: int = SHORTEST) -> None:
        """Takes the secrets; those of less than `shortest` characters are ignored."""
        found = {secret for secret in secrets if len(secret) >= shortest}
        escaped = {json.dumps(secret)[1:-1] for secret in found}
        escaped |= {json.dumps(secret, ensure_ascii=False)[1:-1] for secret in found}
        escaped |= {secret.replace("/", r"\/") for secret in found}
        escaped |= {quote(secret, safe="") for secret in found}
        self._secrets = sorted(found | escaped, key=len, reverse=True)
        self._bytes = [secret.encode(errors="replace") for secret in self._secrets]

    def __bool__(self) -> bool:
        """Whether there is anything to replace."""
        return bool(self._secrets)

    def text(self, text: str, shortest: int = 0) -> str:
        """Returns a text without the secrets of at least `shortest` characters."""
        for secret in self._secrets:
            if len(secret) >= shortest and secret in text:
                text = text.replace(secret, HIDDEN)
        return text

    def data(self, value: Any) -> Any:
        """Returns a copy of nested data without the secrets in its texts; itself without secrets.

        Texts are keys and values of mappings and items of lists and tuples, at any depth.
        """
        if not self._secrets:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.data(key): self.data(item) for key, item in value.items()}
        if isinstance(value, list):
            return [self.data(item) for item in value]
        if type(value) is tuple:
            return tuple(self.data(item) for item in value)
        return value

    def content(self, content: bytes, shortest: int = 0) -> bytes:
        """Returns encoded text without the secrets of at least `shortest` bytes."""
        for secret in self._bytes:
            if len(secret) >= shortest and secret in content:
                content = content.replace(secret, HIDDEN.encode())
        return content
