"""Parses arguments such as `key=value,key=value`, in the syntax of the published command line."""

from __future__ import annotations

import ast
import json
from typing import Any

from lm_eval.errors import ConfigError
from lm_eval.redaction import hide_in_text, mentions_secret


def parse_value(text: str) -> Any:
    """Returns the Python value that `text` spells (`4`, `0.5`, `true`, `None`, a list).

    `true`, `false` and `none` are recognized in any case, and quotes around a Python string are
    removed. Text that is not a literal is returned unchanged.
    """
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    if text.isdecimal():
        return _whole_number(text)
    for read in (ast.literal_eval, float):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def _whole_number(digits: str) -> int:
    """Returns the number; raises `ConfigError` if Python refuses to read so many digits."""
    try:
        return int(digits)
    except ValueError as error:
        raise ConfigError(
            f"a number of {len(digits)} digits is too large. Give a smaller one, or text in quotes."
        ) from error


def handle_arg_string(arg: str) -> Any:
    """Returns the value that a text spells, by the simpler rules of the published harness.

    A text in quotes is the text inside them. `true`, `false` and `none`, in any case, are those
    values. Digits with an optional sign are an integer, and what `float` reads is a float. Any
    other text, also a list, is returned without the spaces around it.
    """
    text = arg.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1]
    known = {"true": True, "false": False, "none": None}
    if text.lower() in known:
        return known[text.lower()]
    for read in (int, float) if text.lstrip("+-").isdigit() else (float,):
        try:
            return read(text)
        except ValueError:
            continue
    return text


def split_outside_brackets(text: str, separator: str = ",") -> list[str]:
    """Returns the parts of `text` between each `separator` that is not inside `()`, `[]` or `{}`.

    Parts are not stripped, and empty ones are kept: an empty text is one empty part. Quotes are
    recognized only inside brackets: a quoted text there may contain brackets.
    """
    parts, depth, quote, start = [], 0, "", 0
    for position, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'" and depth:
            quote = character
        elif character in "[{(":
            depth += 1
        elif character in "]})":
            depth -= 1
        elif character == separator and depth <= 0:
            parts.append(text[start:position])
            start = position + 1
    return [*parts, text[start:]]


def simple_parse_args_string(args_string: str | None) -> dict[str, Any]:
    """Returns arguments as a dictionary; the published harness's name of `parse_arguments`."""
    return parse_arguments(args_string)


def parse_arguments(text: str | dict[str, Any] | None) -> dict[str, Any]:
    """Returns arguments as a dictionary.

    `text` is `key=value` pairs (`a=1,b=[2,3]`), whose values are converted by `parse_value`; or a
    JSON object, a dictionary (returned unchanged), or None or an empty text (an empty dictionary).
    If a key occurs twice, the last value is used. Raises `ConfigError` if `text` cannot be parsed.
    """
    if not text:
        return {}
    if isinstance(text, dict):
        return text
    text = str(text).strip()
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except ValueError as error:  # also a number with too many digits
            raise ConfigError(
                f"{_shown(text)} begins with a brace, but is not a JSON object ({error})."
            ) from error
        if not isinstance(parsed, dict):
            raise ConfigError(f"{_shown(text)} is not a JSON object.")
        return parsed
    arguments: dict[str, Any] = {}
    for part in split_outside_brackets(text):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            if _may_contain_key(text):  # the part may be the rest of a key that contains a comma
                raise ConfigError(f"{_shown(text)} is not of the form key=value,key=value.")
            raise ConfigError(f"{part.strip()!r} is not of the form key=value (in {text!r}).")
        arguments[key.strip()] = parse_value(value.strip())
    return arguments


def merge_arguments(value: Any) -> dict[str, Any]:
    """Returns arguments, or a list of such as one option gets several, as a new dictionary.

    If a key occurs twice, the last value is used. Raises `ConfigError` like `parse_arguments`.
    """
    parts = value if isinstance(value, (list, tuple)) else [value]
    return {key: one for part in parts for key, one in parse_arguments(part).items()}


def _shown(text: str) -> str:
    """Returns arguments for an error message; not the text itself if it may contain a key."""
    return "the text (not shown: it may contain a key)" if _may_contain_key(text) else repr(text)


def _may_contain_key(text: str) -> bool:
    return mentions_secret(text) or hide_in_text(text) != text
