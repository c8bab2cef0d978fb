"""Evaluates `doc_to_text`, `doc_to_target`, `doc_to_choice` and similar fields for a document.

The value of such a field in a task file, called `spec` here, may be a column name, a Jinja
template, a function or a constant. As in the published harness, a string that is the name of a
column (in `columns`) is that column's value; any other text is a template.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any

from lm_eval.errors import ConfigError, DataError, suggestion
from lm_eval.prompts.template import apply_template, renders_none

Doc = Mapping[str, Any]


def text_of(doc: Any, spec: Any, columns: Collection[str], has_choices: bool) -> Any:
    """Returns the question of a document, given the task's `doc_to_text` as `spec`.

    If `spec` is one of `columns`, it is that column's value, of any type. Any other text is
    rendered as a template; the result is a string, or an integer (an index into the choices) if
    `has_choices` and it consists of digits. A function is called with the document, and an integer
    is returned unchanged.

    Raises `ConfigError` if `spec` has another type or the template is invalid, and `DataError` if
    the template cannot be rendered for this document.
    """
    if isinstance(spec, int):
        return spec
    if isinstance(spec, str):
        if spec in columns:
            return doc[spec]
        text = apply_template(spec, doc)
        return int(text) if has_choices and text.isdecimal() else text
    if callable(spec):
        return spec(doc)
    raise ConfigError(
        f"doc_to_text must be a column name, template, function or integer, not {spec!r}."
    )


def target_of(doc: Any, spec: Any, columns: Collection[str], has_choices: bool) -> Any:
    """Returns the gold answer of a document, given the task's `doc_to_target` as `spec`.

    It is a string, an index into the choices, or a list of either. If `spec` is one of `columns`,
    it is that column's value. Any other text is rendered as a template; the result is an integer if
    `has_choices` and it consists of digits, a list if it is a Python list, and a string otherwise.
    A function is called with the document; an integer or a list is returned unchanged.

    Raises `ConfigError` if `spec` has another type or the template is invalid, and `DataError` if
    the template cannot be rendered for this document.
    """
    if isinstance(spec, (int, list)):
        return spec
    if isinstance(spec, str):
        if spec in columns:
            return doc[spec]
        text = apply_template(spec, doc)
        if has_choices and text.isdecimal():
            return int(text)
        if len(text) >= 2 and text[0] == "[" and text[-1] == "]":
            return _literal_or_text(text)
        return text
    if callable(spec):
        return spec(doc)
    raise ConfigError(
        f"doc_to_target must be a column name, template, function, integer or list, not {spec!r}."
    )


def choices_of(doc: Any, spec: Any, columns: Collection[str]) -> Any:
    """Returns the choices of a document as a list, given the task's `doc_to_choice` as `spec`.

    `spec` may be a list of choices, a mapping whose values are the choices, one of `columns`, a
    template that renders as a Python list, or a function. Tuples and arrays are converted to lists;
    what else a column, a template or a function gives is not checked. Raises `DataError` if a
    template does not render as a Python literal, and `ConfigError` if `spec` has another type.
    """
    if isinstance(spec, list):
        return spec
    if isinstance(spec, dict):
        return list(spec.values())
    if isinstance(spec, str):
        found = doc[spec] if spec in columns else _literal(apply_template(spec, doc), spec, columns)
    elif callable(spec):
        found = spec(doc)
    else:
        raise _choice_type_error(spec)
    if isinstance(found, tuple):
        return list(found)
    return found.tolist() if hasattr(found, "tolist") else found


def _choice_type_error(spec: Any) -> ConfigError:
    return ConfigError(
        f"doc_to_choice must be a column name, template, list, mapping or function, not {spec!r}."
    )


def media_of(doc: Any, spec: Any, columns: Collection[str]) -> Any:
    """Returns the images or sounds of a question; `spec` is `doc_to_image` or `doc_to_audio`.

    If `spec` is one of `columns`, it is that column's value. Any other text is rendered as a
    template, which must give a Python literal, otherwise `DataError` is raised. If `spec` is a
    list, each element is evaluated and None is left out of the result. A function is called with
    the document. Returns None if `spec` is None or of another type.
    """
    if isinstance(spec, list):
        found = (media_of(doc, item, columns) for item in spec)
        return [item for item in found if item is not None]
    if isinstance(spec, str):
        return doc[spec] if spec in columns else _literal(apply_template(spec, doc), spec, columns)
    return spec(doc) if callable(spec) else None


def column_or_template(doc: Any, spec: str | None) -> Any:
    """Returns the text of a description or prefix: the column `spec`, or the rendered template.

    Returns None if `spec` is None or empty. Raises the errors of `apply_template`.
    """
    if not spec:
        return None
    return doc[spec] if spec in doc else apply_template(spec, doc)


def none_in(doc: Any, spec: Any, value: Any) -> str | None:
    """Returns where a field of a document contains None, for a message; None if it does not.

    It is used by validation, to find prompts that contain the word "None" by mistake.

    Args:
        doc: the document.
        spec: the field in the task file: a column name, a template or a function.
        value: the value of the field for this document.
    """
    if value is None or (isinstance(value, list) and None in value):
        return f"gives {value!r}" + (f" (column {spec!r})" if _is_column(doc, spec) else "")
    if isinstance(spec, str) and not _is_column(doc, spec) and renders_none(spec, doc):
        empty = [name for name, held in doc.items() if held is None and name in spec]
        named = f" ({', '.join(empty)} is None in this document)" if empty else ""
        return f"contains the word None{named}, which the template {spec!r} renders"
    written: str | None = spec.none_in(doc) if hasattr(spec, "none_in") else None
    return written


def _is_column(doc: Any, spec: Any) -> bool:
    return isinstance(spec, str) and isinstance(doc, Mapping) and spec in doc


def _literal(text: str, template: str, columns: Collection[str]) -> Any:
    """Returns the Python literal in `text`, which is what `template` was rendered as.

    Raises `DataError` if it is not a literal; if `template` looks like a column name, the message
    suggests the nearest of `columns`.
    """
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        if template.isidentifier():  # A single word is probably a misspelled column name.
            raise DataError(
                f"there is no column {template!r}.{suggestion(template, columns)} "
                f"The columns are: {', '.join(columns)}."
            ) from error
        raise DataError(
            f"the template {template!r} must render as a Python list, but rendered as {text!r}."
        ) from error


def _literal_or_text(text: str) -> Any:
    """Returns the Python literal in `text`, or `text` itself if it is not a literal."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
