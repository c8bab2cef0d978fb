"""Renders Jinja2 templates in a sandbox, in which a template can access only the document."""

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
    """Returns `string` with matches of `pattern` replaced, as `re.sub` does; a template filter.

    At most `count` matches are replaced; 0 replaces all.
    """
    return re.sub(pattern, repl, string, count=count)


env = SandboxedEnvironment(
    loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True
)
env.filters["regex_replace"] = regex_replace


@cache
def compile_template(source: str) -> Template:
    """Returns the compiled template. Templates are cached by their source text.

    Raises `ConfigError`, with the line number, if the syntax is invalid.
    """
    try:
        template = env.from_string(source)
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"the template {source!r} has a syntax error in line {error.lineno}: "
            f"{(error.message or '').rstrip('.')}."
        ) from error
    # Jinja copies the globals for every rendering, and a plain dictionary is copied much faster
    # than the ChainMap that Jinja creates.
    template.globals = dict(template.globals)
    return template


def apply_template(template: str, doc: Mapping[str, Any]) -> str:
    """Returns a template rendered with the columns of a document as variables.

    Raises `ConfigError` if the template is invalid or accesses something that the sandbox forbids,
    and `DataError` if rendering fails for this document, for example because a column is missing.
    """
    compiled = compile_template(template)
    try:
        return compiled.render(doc)
    except UndefinedError as error:
        raise DataError(
            f"{error.message}, in {_line_of(error)}the template {template!r}. "
            f"The columns of the document are: {', '.join(map(str, doc))}."
        ) from error
    except SecurityError as error:
        raise ConfigError(
            f"the template {template!r} accesses something that is not allowed in templates: "
            f"{_message(error)}."
        ) from error
    except EvalError:
        raise
    except Exception as error:  # Expressions in a template can raise any exception.
        raise DataError(
            f"{_line_of(error)}the template {template!r} failed on a document: "
            f"{type(error).__name__}: {_message(error)}."
        ) from error


class _NoneRenderedError(Exception):
    """Raised when an expression of a template evaluates to None."""


def _refuse_none(value: Any) -> Any:
    """Returns `value`; raises `_NoneRenderedError` if it is or contains None.

    Only lists and tuples are searched.
    """
    if value is None or (isinstance(value, (list, tuple)) and None in value):
        raise _NoneRenderedError
    return value


_strict_env = env.overlay(finalize=_refuse_none)


def renders_none(template: str, doc: Mapping[str, Any]) -> bool:
    """Returns whether an expression of a template gives None, or a list or tuple with None in it.

    Such a prompt would contain the word "None". Call it only after `apply_template` succeeded for
    this document, because other errors are not handled.
    """
    try:
        _strict_env.from_string(template).render(doc)
    except _NoneRenderedError:
        return True
    return False


def _message(error: Exception) -> str:
    """Returns the message of an error without its final period, to be used within a sentence."""
    return str(error).rstrip(".")


def _line_of(error: Exception) -> str:
    """Returns the line of a template that raised `error`, as `"line 3 of "`; "" if unknown."""
    # Jinja gives templates without a file one of these names in tracebacks.
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename in ("<template>", "<unknown>")]
    return f"line {lines[-1]} of " if lines and lines[-1] else ""
