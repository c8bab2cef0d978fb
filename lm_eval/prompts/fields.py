"""Read `doc_to_text`, `doc_to_target`, `doc_to_choice` and their like from a document.

Each may be a column name, a template, a function or a plain value; the rules for which is which,
and for text that spells a number or a list, are the published ones.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from typing import Any

from lm_eval.errors import ConfigError, DataError, suggestion
from lm_eval.prompts.template import apply_template, renders_none

Doc = Mapping[str, Any]


def text_of(doc: Any, spec: Any, columns: Collection[str], has_choices: bool) -> Any:
    """The question. A bare number, where there are choices, is an index into them."""
    if isinstance(spec, int):
        return spec
    if isinstance(spec, str):
        if spec in columns:
            return doc[spec]
        text = apply_template(spec, doc)
        return int(text) if has_choices and text.isdecimal() else text
    if callable(spec):
        return spec(doc)
    raise ConfigError(f"doc_to_text must be a column, template or function, not {spec!r}.")


def target_of(doc: Any, spec: Any, columns: Collection[str], has_choices: bool) -> Any:
    """The gold answer: text, an index into the choices, or a list of either."""
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
    raise ConfigError(f"doc_to_target must be a column, template or function, not {spec!r}.")


def choices_of(doc: Any, spec: Any, columns: Collection[str]) -> Any:
    """The answers to choose from."""
    if isinstance(spec, list):
        return spec
    if isinstance(spec, dict):
        return list(spec.values())
    if isinstance(spec, str):
        found = doc[spec] if spec in columns else _literal(apply_template(spec, doc), spec, columns)
    elif callable(spec):
        found = spec(doc)
    else:
        raise _wrong_choice(spec)
    if isinstance(found, tuple):
        return list(found)
    return found.tolist() if hasattr(found, "tolist") else found


def _wrong_choice(spec: Any) -> ConfigError:
    return ConfigError(
        f"doc_to_choice must be a column, template, list, table or function, not {spec!r}."
    )


def media_of(doc: Any, spec: Any, columns: Collection[str]) -> Any:
    """Images or sounds that belong to the question."""
    if isinstance(spec, list):
        found = (media_of(doc, item, columns) for item in spec)
        return [item for item in found if item is not None]
    if isinstance(spec, str):
        return doc[spec] if spec in columns else _literal(apply_template(spec, doc), spec, columns)
    return spec(doc) if callable(spec) else None


def column_or_template(doc: Any, spec: str | None) -> Any:
    """A description or prefix: a column's value, or the template filled in."""
    if not spec:
        return None
    return doc[spec] if spec in doc else apply_template(spec, doc)


def none_in(doc: Any, spec: Any, value: Any) -> str | None:
    """Returns what is None in a field of a document, for validation; None if nothing is.

    `value` is what the field gave. A template may have given text that holds the word `None`.
    """
    if value is None or (isinstance(value, list) and None in value):
        return f"gives {value!r}" + (f" (column {spec!r})" if _is_column(doc, spec) else "")
    if isinstance(spec, str) and not _is_column(doc, spec) and renders_none(spec, doc):
        empty = [name for name, held in doc.items() if held is None and name in spec]
        named = f" ({', '.join(empty)} is None in this document)" if empty else ""
        return f"writes the word None{named}, by the template {spec!r}"
    written: str | None = spec.none_in(doc) if hasattr(spec, "none_in") else None
    return written


def _is_column(doc: Any, spec: Any) -> bool:
    return isinstance(spec, str) and isinstance(doc, Mapping) and spec in doc


def _literal(text: str, template: str, columns: Collection[str]) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError) as error:
        if template.isidentifier():  # a name by itself is meant to be a column's
            raise DataError(
                f"there is no column {template!r}.{suggestion(template, columns)} "
                f"The columns are: {', '.join(columns)}."
            ) from error
        raise DataError(
            f"the template {template!r} should spell a Python list, but gave {text!r}."
        ) from error


def _literal_or_text(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text
