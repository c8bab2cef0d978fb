"""Renders Jinja2 templates in a sandbox, in which a template can access only the document."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any

from jinja2 import BaseLoader, StrictUndefined, Template, TemplateSyntaxError, nodes
from jinja2.exceptions import SecurityError, UndefinedError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from lm_eval import regexes
from lm_eval.errors import ConfigError, DataError, EvalError
from lm_eval.prompts.guarded_environment import GuardedEnvironment
from lm_eval.prompts.plain_templates import is_plain
from lm_eval.prompts.template_limits import (
    Budget,
    TooMuchWorkError,
    interrupted_after,
    spending,
)

#: How long one rendering may take in `validate` and `show`, in seconds.
SECONDS = 10.0
#: The longest template, and the most `{{ … }}` and `{% … %}` in it.
_LONGEST, _MOST_TAGS = 1_000_000, 20_000


def regex_replace(string: str, pattern: str, repl: str, count: int = 0) -> str:
    """Returns `string` with matches of `pattern` replaced, as `re.sub` does; a template filter.

    At most `count` matches are replaced; 0 replaces all. Raises `DataError` if it takes too long.
    """
    return regexes.sub(re.compile(pattern), repl, string, count)


env = ImmutableSandboxedEnvironment(
    loader=BaseLoader(), undefined=StrictUndefined, keep_trailing_newline=True
)
env.filters["regex_replace"] = regex_replace
del env.globals["lipsum"]  # random text of any length

_seconds: ContextVar[float | None] = ContextVar("template_seconds", default=None)


@contextmanager
def render_limit(seconds: float = SECONDS) -> Iterator[None]:
    """Context manager in which each rendering of a template may take so many seconds."""
    token = _seconds.set(seconds)
    try:
        yield
    finally:
        _seconds.reset(token)


def syntax_error(source: str) -> str | None:
    """Returns what is wrong with the syntax of a template, for a message; None if nothing is."""
    try:
        _parse(source)
    except TemplateSyntaxError as error:
        return f"line {error.lineno} of the template: {error.message}"
    except ConfigError as error:
        return str(error)
    return None


def _parse(source: str) -> nodes.Template:
    """Returns the parsed template.

    Raises `TemplateSyntaxError` if its syntax is invalid, and `ConfigError` if it is too long or
    too deeply nested.
    """
    if len(source) > _LONGEST or source.count("{{") + source.count("{%") > _MOST_TAGS:
        raise ConfigError(
            f"a template of {len(source)} characters is too long: there may be {_LONGEST}, and "
            f"{_MOST_TAGS} expressions. Shorten it."
        )
    try:
        return env.parse(source)
    except RecursionError as error:
        raise ConfigError("the template is nested too deeply. Use fewer levels.") from error


@cache
def compile_template(source: str) -> Template:
    """Returns the compiled template. Templates are cached by their source text.

    Raises `ConfigError`, with the line number, if the syntax is invalid.
    """
    return _compile(source, env)


@cache
def _renderer(source: str) -> Callable[[Mapping[str, Any]], str]:
    """Returns the function that renders a template with the columns of a document.

    A template that may be expensive is rendered within limits; others as fast as possible. Raises
    `ConfigError` if the syntax is invalid.
    """
    try:
        plain = is_plain(_parse(source))
    except TemplateSyntaxError:
        plain = True  # the error is reported below
    if plain:
        return compile_template(source).render
    return _limited(source, None)


def _limited(
    source: str, finalize: Callable[[Any], Any] | None
) -> Callable[[Mapping[str, Any]], str]:
    """Returns a function that renders a template within limits; see `template_limits`.

    `finalize` is applied to the value of each expression, unless it is None.
    """
    with spending(Budget()):
        template = _compile(source, GuardedEnvironment(env, finalize))

    def render(doc: Mapping[str, Any]) -> str:
        seconds = _seconds.get()
        deadline = None if seconds is None else time.monotonic() + seconds
        with spending(Budget(deadline)), interrupted_after(seconds):
            return template.render(doc)

    return render


def _compile(source: str, environment: ImmutableSandboxedEnvironment) -> Template:
    """Returns the template, compiled in an environment; raises `ConfigError` if it cannot be."""
    try:
        _parse(source)
        template = environment.from_string(source)
    except TemplateSyntaxError as error:
        raise ConfigError(
            f"the template {source!r} has a syntax error in line {error.lineno}: "
            f"{(error.message or '').rstrip('.')}."
        ) from error
    except TooMuchWorkError as error:
        raise _too_much(source, error) from error
    # Python refuses code that is nested too deeply, and some constants.
    except (SyntaxError, RecursionError, MemoryError, ValueError, ArithmeticError) as error:
        if isinstance(error, EvalError):
            raise
        raise ConfigError(
            f"the template {source!r} cannot be compiled ({_message(error)}). Use fewer levels."
        ) from error
    # Jinja copies the globals for every rendering, and a plain dictionary is copied much faster
    # than the ChainMap that Jinja creates.
    template.globals = dict(template.globals)
    return template


def _too_much(source: str, error: TooMuchWorkError) -> ConfigError:
    return ConfigError(
        f"the template {source!r} {error}. Simplify it, or use a Python function (`!function`)."
    )


def apply_template(template: str, doc: Mapping[str, Any]) -> str:
    """Returns a template rendered with the columns of a document as variables.

    Raises `ConfigError` if the template is invalid or accesses something that the sandbox forbids,
    and `DataError` if rendering fails for this document, for example because a column is missing.
    """
    render = _renderer(template)
    try:
        return render(doc)
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
    except TooMuchWorkError as error:
        raise _too_much(template, error) from error
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


@cache
def _strict_renderer(source: str) -> Callable[[Mapping[str, Any]], str]:
    """Returns the function that renders a template and raises `_NoneRenderedError` for a None."""
    if is_plain(_parse(source)):
        return _strict_env.from_string(source).render
    return _limited(source, _refuse_none)


def renders_none(template: str, doc: Mapping[str, Any]) -> bool:
    """Returns whether an expression of a template gives None, or a list or tuple with None in it.

    Such a prompt would contain the word "None". Call it only after `apply_template` succeeded for
    this document, because other errors are not handled.
    """
    try:
        _strict_renderer(template)(doc)
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
