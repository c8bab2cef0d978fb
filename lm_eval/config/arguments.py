"""Read `key=value,key=value` the way the command line has always taken it."""

from __future__ import annotations

import ast
import json
from typing import Any

from lm_eval.errors import ConfigError


def parse_value(text: str) -> Any:
    """A literal where the text spells one (`4`, `0.5`, `true`, `None`, a list), else the text."""
    lowered = text.lower()
    if lowered in ("true", "false"):
        return lowered == "true"
    if lowered == "none":
        return None
    if text.isdigit():
        return int(text)
    for read in (ast.literal_eval, float):
        try:
            return read(text)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return text


def split_outside_brackets(text: str, separator: str = ",") -> list[str]:
    """Split at separators that are not inside brackets or quotes, so that lists stay whole."""
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
    """The published name of `parse_arguments`."""
    return parse_arguments(args_string)


def parse_arguments(text: str | dict[str, Any] | None) -> dict[str, Any]:
    """`"a=1,b=[2,3]"`, a JSON object, or a dictionary already."""
    if not text:
        return {}
    if isinstance(text, dict):
        return text
    text = str(text).strip()
    if text.startswith("{"):
        try:
            parsed = json.loads(text)
        except json.JSONDecodeError as error:
            raise ConfigError(f"not a JSON object: {text!r} ({error}).") from error
        if not isinstance(parsed, dict):
            raise ConfigError(f"not a JSON object: {text!r}.")
        return parsed
    arguments: dict[str, Any] = {}
    for part in split_outside_brackets(text):
        if not part.strip():
            continue
        key, equals, value = part.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"{part.strip()!r} is not of the form key=value (in {text!r}).")
        arguments[key.strip()] = parse_value(value.strip())
    return arguments
