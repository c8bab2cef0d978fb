"""The secrets that this process has been given: as settings, or in environment variables."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import lru_cache

from lm_eval.redaction.names import is_secret_variable
from lm_eval.redaction.redactor import Redactor

#: Shorter values are not treated as known secrets: `1` or `none` would be replaced everywhere.
_SHORTEST_KNOWN = 8

#: The secrets that were given as settings. A secret stays one until the process ends.
_remembered: set[str] = set()


def remember_secrets(secrets: Iterable[str]) -> None:
    """Adds secrets that are hidden from now on in everything that this process writes.

    Those of less than eight characters are ignored.
    """
    _remembered.update(secret for secret in secrets if len(secret) >= _SHORTEST_KNOWN)


def known_redactor(shortest: int = _SHORTEST_KNOWN) -> Redactor:
    """Returns a redactor of all known secrets of at least `shortest` characters.

    They are the values of environment variables whose names look secret (`is_secret_variable`), and
    the secrets among the settings of this process (`remember_secrets`).
    """
    # Not `items()`, which decodes the values of all variables.
    variables = {os.environ[name] for name in os.environ if is_secret_variable(name)}
    return _redactor(frozenset(variables | _remembered), max(shortest, _SHORTEST_KNOWN))


@lru_cache(maxsize=8)
def _redactor(secrets: frozenset[str], shortest: int) -> Redactor:
    return Redactor((secret.strip() for secret in secrets), shortest)
