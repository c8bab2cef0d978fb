"""Jinja2 templates, compiled once, unable to reach anything but the document."""

from __future__ import annotations

import re
import traceback
from collections.abc import Mapping
from functools import cache
from typing import Any

from jinja2 import BaseLoader, StrictUndefined, Template, TemplateSyntaxError
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.sandbox import SandboxedEnvironment

from lm_eval.errors import ConfigError, DataError, EvalError


def regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    """`re.sub` as a template filter."""
    return re.sub(pattern, repl, string, count=count)


env = SandboxedEnvironment(
    loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True
)
env.filters["regex_replace"] = regex_replace


@cache
def compile_template(source: str) -> Template:
    """Compile a template; every document of every task with the same text shares the result."""
    try:
        template = env.from_string(source)
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"template line {error.lineno}: {(error.message or '').rstrip('.')}, in {source!r}."
        ) from error
    # Each rendering copies the globals; a plain dictionary is copied much sooner than a chain.
    template.globals = dict(template.globals)
    return template


def apply_template(template: str, doc: Mapping[str, Any]) -> str:
    """Fill a template in from a document."""
    compiled = compile_template(template)
    try:
        return compiled.render(doc)
    except UndefinedError as error:
        raise DataError(
            f"{error.message}, in {_line_of(error)}the template {template!r}. "
            f"The document has: {', '.join(map(str, doc))}."
        ) from error
    except SecurityError as error:
        raise ConfigError(
            f"the template {template!r} reaches for what it may not have: {_end(error)}."
        ) from error
    except EvalError:
        raise
    except Exception as error:  # whatever a template's arithmetic, pattern or recursion comes to
        raise DataError(
            f"{_line_of(error)}the template {template!r} failed on a document: "
            f"{type(error).__name__}: {_end(error)}."
        ) from error


class _NoneRenderedError(Exception):
    """An expression of a template gave None where text is to stand."""


def _refuse_none(value: Any) -> Any:
    if value is None or (isinstance(value, (list, tuple)) and None in value):
        raise _NoneRenderedError
    return value


_strict_env = env.overlay(finalize=_refuse_none)


def renders_none(template: str, doc: Mapping[str, Any]) -> bool:
    """Returns whether a template writes `None`, alone or in a list, for a document.

    Only for templates that `apply_template` can fill in from this document.
    """
    try:
        _strict_env.from_string(template).render(doc)
    except _NoneRenderedError:
        return True
    return False


def _end(error: Exception) -> str:
    """A message without its full stop: the sentence goes on."""
    return str(error).rstrip(".")


def _line_of(error: Exception) -> str:
    """`line 3 of `, where Jinja knows the line; templates have no file name of their own."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in ("<template>", "<unknown>")]
    return f"line {lines[-1]} of " if lines and lines[-1] else ""
