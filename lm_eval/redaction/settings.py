"""Redacts settings: mappings, lists and texts at any depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lm_eval.redaction.known import known_redactor
from lm_eval.redaction.names import is_secret, texts_in
from lm_eval.redaction.patterns import hide_by_form, passwords_in
from lm_eval.redaction.redactor import HIDDEN, Redactor, credentials, secret_words
from lm_eval.redaction.texts import hide_named

#: How deep settings may be nested. What is deeper is left out; no setting is.
_DEEPEST = 60


def without_secrets(settings: Any) -> Any:
    """Returns a copy of settings without the items that are secret by name, at any depth.

    In the remaining texts, what has the form of a secret or is a known one is replaced by `***`.
    """
    return _redacted(settings, known_redactor(), keep_names=False)


def hide_secrets(settings: Any) -> Any:
    """Returns a copy like `without_secrets`, in which secret items are kept as `***`."""
    return _redacted(settings, known_redactor(), keep_names=True)


def _redacted(value: Any, redactor: Redactor, keep_names: bool, depth: int = 0) -> Any:
    if isinstance(value, str):
        return redactor.text(hide_named(hide_by_form(value))) if value else value
    if depth > _DEEPEST:
        return HIDDEN
    if isinstance(value, Mapping):
        return {
            name: HIDDEN
            if is_secret(name, item)
            else _redacted(item, redactor, keep_names, depth + 1)
            for name, item in value.items()
            if keep_names or not is_secret(name, item)
        }
    if isinstance(value, (list, tuple)):
        items = [_redacted(item, redactor, keep_names, depth + 1) for item in value]
        return items if isinstance(value, list) else _as_tuple(value, items)
    return value


def _as_tuple(original: tuple[Any, ...], items: list[Any]) -> tuple[Any, ...]:
    """Returns the items as a tuple; of the original type if it is a named tuple."""
    make = getattr(type(original), "_make", tuple)
    made: tuple[Any, ...] = make(items)
    return made


def secret_names(settings: Any) -> list[str]:
    """Returns the names of all settings that `without_secrets` leaves out or changes.

    Names of nested settings are joined by dots: `header`, `server.api_key`.
    """
    redactor = known_redactor()
    return sorted(dict.fromkeys(_names(settings, redactor, "", 0)))


def _names(value: Any, redactor: Redactor, name: str, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        if value and redactor.text(hide_named(hide_by_form(value))) != value:
            yield name
    elif isinstance(value, Mapping) and depth <= _DEEPEST:
        for key, item in value.items():
            inner = f"{name}.{key}" if name else str(key)
            if is_secret(key, item):
                yield inner
            else:
                yield from _names(item, redactor, inner, depth + 1)
    elif isinstance(value, (list, tuple)) and depth <= _DEEPEST:
        for item in value:
            yield from _names(item, redactor, name, depth + 1)


def secret_values(settings: Any) -> list[str]:
    """Returns the secrets among settings: values that are secret by name, passwords in addresses.

    `remember_secrets` should know them.
    """
    return list(_values(settings, 0))


def _values(value: Any, depth: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from passwords_in(value)
    elif isinstance(value, Mapping) and depth <= _DEEPEST:
        for key, item in value.items():
            if is_secret(key, item):
                yield from _secrets_of(item)
            else:
                yield from _values(item, depth + 1)
    elif isinstance(value, (list, tuple)) and depth <= _DEEPEST:
        for item in value:
            yield from _values(item, depth + 1)


def _secrets_of(value: Any) -> Iterator[str]:
    """Yields the secrets in the value of a secret setting: it, or the words of a header."""
    if isinstance(value, Mapping):
        yield from credentials({str(name): " ".join(texts_in(one)) for name, one in value.items()})
    elif isinstance(value, (int, float)):
        yield str(value)
    for text in texts_in(value) if not isinstance(value, Mapping) else ():
        name, colon, rest = text.partition(": ")
        if colon:  # a header as text
            yield from credentials({name: rest})
        elif " " in text:
            yield text
            yield from secret_words(text)
        else:
            yield text
