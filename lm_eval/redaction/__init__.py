"""Keeps secrets out of everything that leaves the process: messages, files, trackers.

`names` decides which names denote a secret, `patterns` finds secrets in text by their form, `known`
collects the secrets that this process has been given, and `redactor` replaces secrets. Use

- `hide_in_text` for messages: log lines, errors, tracebacks;
- `without_secrets` and `hide_secrets` for settings: by name at any depth, and by form;
- `known_redactor` for large data, such as sample logs: only secrets that are known.
"""

from lm_eval.redaction.known import known_redactor, remember_secrets
from lm_eval.redaction.names import is_secret, is_secret_variable, mentions_secret
from lm_eval.redaction.redactor import HIDDEN, SHORTEST_IN_DATA, Redactor, credentials
from lm_eval.redaction.settings import hide_secrets, secret_names, secret_values, without_secrets
from lm_eval.redaction.texts import hide_in_text, redacting_excepthook

__all__ = [
    "HIDDEN",
    "SHORTEST_IN_DATA",
    "Redactor",
    "credentials",
    "hide_in_text",
    "hide_secrets",
    "is_secret",
    "is_secret_variable",
    "known_redactor",
    "mentions_secret",
    "redacting_excepthook",
    "remember_secrets",
    "secret_names",
    "secret_values",
    "without_secrets",
]
