"""The secrets that this process has been given: as settings, or in environment variables."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from lm_eval.redaction.names import is_secret_variable
from lm_eval.redaction.redactor import Redactor

#: Shorter values are not treated as known secrets: `1` or `none` would be replaced everywhere.
_SHORTEST_KNOWN = 8
#: Values of other forms may be ordinary words, such as `postgres` or `changeme`.
_DISTINCTIVE = re.compile(r".*\d.*|.*[a-z].*[A-Z].*|.*[A-Z].*[a-z].*|.{20,}", re.DOTALL)

#: The secrets that were given as settings. A secret stays one until the process ends.
_remembered: set[str] = set()


def remember_secrets(secrets: Iterable[str]) -> None:
    """Adds secrets that are hidden from now on in everything that this process writes.

    Those of less than eight characters are ignored.
    """
    _remembered.update(secret for secret in secrets if len(secret) >= _SHORTEST_KNOWN)


def known_redactor(shortest: int = _SHORTEST_KNOWN) -> Redactor:
    """Returns a redactor of the known secrets of at least `shortest` characters, for data.

    They are the values of environment variables whose names look secret (`is_secret_variable`), and
    the secrets among the settings of this process (`remember_secrets`). Values that may be ordinary
    words or are paths of files are left out.
    """
    known = _variables() | {secret for secret in _remembered if _DISTINCTIVE.fullmatch(secret)}
    return _redactor(frozenset(known), max(shortest, _SHORTEST_KNOWN))


def message_redactor() -> Redactor:
    """Returns a redactor of all known secrets, for messages; see `known_redactor`.

    It also hides secrets among the settings that may be ordinary words: a message is no data.
    """
    return _redactor(frozenset(_variables() | _remembered), _SHORTEST_KNOWN)


def _variables() -> set[str]:
    # Not `items()`, which decodes the values of all variables.
    found = {os.environ[name].strip() for name in os.environ if is_secret_variable(name)}
    return {value for value in found if _DISTINCTIVE.fullmatch(value) and not _is_path(value)}


@lru_cache(maxsize=64)
def _is_path(value: str) -> bool:
    """Returns whether a value is the path of a file, such as `/home/me/credentials.json`."""
    try:
        return value.startswith(("/", "~")) and Path(value).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


@lru_cache(maxsize=8)
def _redactor(secrets: frozenset[str], shortest: int) -> Redactor:
    return Redactor(secrets, shortest)
