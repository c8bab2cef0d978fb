"""Redacts messages: log lines, errors and tracebacks."""

from __future__ import annotations

import re
import sys
import traceback
from types import TracebackType

from lm_eval.redaction.known import message_redactor
from lm_eval.redaction.names import is_secret
from lm_eval.redaction.patterns import HIDDEN, hide_by_form

#: A name with what stands between it and its value: `name=`, `"name": "`, `name: `, `--name `.
_NAME = re.compile(
    r"(?<![\w.-])(?P<name>(?:--)?[A-Za-z][\w.-]*)"
    r"(?P<between>[\"']?\s*=\s*[\"']?|[\"']\s*:\s*[\"']?|:\s+[\"']?|(?<=\w)[ ]+)"
)
_VALUE = re.compile(r"[^\s\"',;&(){}\[\]<>]+")
#: A value after a colon or a space is a secret only if it does not look like a word of a sentence.
_NO_WORD = re.compile(r"(?=.*[\d_/+=])\S{8,}|\S{24,}")


def hide_named(text: str) -> str:
    """Returns a text in which the values of secret names are replaced: `api_key=***`.

    `name=value`, the form of JSON and of a command line are recognized.
    """
    if "=" not in text and ":" not in text and "--" not in text:
        return text
    parts, end = [], 0
    for found in _NAME.finditer(text):
        value = _VALUE.match(text, found.end())
        if value is None or found.start() < end or not _hides(found, value[0]):
            continue
        parts += [text[end : found.end()], HIDDEN]
        end = value.end()
    return "".join([*parts, text[end:]])


def _hides(found: re.Match[str], value: str) -> bool:
    """Returns whether `value` is the secret that the name found before it denotes."""
    between = found["between"]
    if not between.strip() and not found["name"].startswith("--"):
        return False
    if value.startswith(("…", "...", "$", HIDDEN)) or not is_secret(found["name"], value):
        return False
    is_value = "=" in between or between.startswith(("'", '"'))
    return is_value or _NO_WORD.fullmatch(value) is not None


def hide_in_text(text: str) -> str:
    """Returns a message without secrets: known ones, named ones, and those of a known form."""
    return hide_named(hide_by_form(message_redactor().text(text)))


def redacting_excepthook(
    kind: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Prints a traceback without secrets to stderr, in place of `sys.excepthook`."""
    if sys.stderr is not None:
        text = "".join(traceback.format_exception(kind, error, trace))
        sys.stderr.write(hide_in_text(text))
