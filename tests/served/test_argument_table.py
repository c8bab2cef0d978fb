"""Tests that docs/servers.md lists the arguments of all served backends, with their defaults."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import Any

from lm_eval.models import MODEL_MAPPING
from lm_eval.models.served.base import ServedBase
from lm_eval.models.served.model import ServedLM
from lm_eval.models.served.published_attributes import PublishedAttributes

PAGE = Path(__file__).parents[2] / "docs" / "servers.md"


def tables(first: str) -> list[list[str]]:
    """Returns the rows of the table of the page whose header begins with `first`."""
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    start = lines.index(next(line for line in lines if line.startswith(first))) + 2
    rows = []
    for line in lines[start:]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def served_backends() -> dict[str, type[ServedLM]]:
    """Returns our classes for served models, each under the first of its names."""
    found: dict[str, type[ServedLM]] = {}
    for name, target in MODEL_MAPPING.items():
        module, _, class_name = target.partition(":")
        if "lm_eval.models." not in module or "causallms" in module or "hugging" in module:
            continue
        model_class = getattr(importlib.import_module(module), class_name)
        if issubclass(model_class, ServedLM) and model_class not in found.values():
            found[name] = model_class
    return found


def shown(name: str, value: Any, model_class: type[ServedBase]) -> str:
    """Returns a default as the page shows it; what stands for None is looked up."""
    if name == "tokenizer_backend" and value is None:
        value = "none"
        if not issubclass(model_class, PublishedAttributes):
            value = model_class.default_tokenizer_backend
    if name == "base_url" and value is None:
        value = model_class.default_base_url
    return "–" if value is None else f"`{value}`"


def defaults(model_class: type[ServedBase]) -> dict[str, str]:
    """Returns the arguments of a class with their defaults: those of the most derived class."""
    found: dict[str, str] = {}
    for base in model_class.__mro__:
        if "__init__" in vars(base) and issubclass(base, ServedBase):
            signature = inspect.signature(vars(base)["__init__"])
            for p in list(signature.parameters.values())[1:]:
                if p.kind is not p.VAR_KEYWORD:
                    found.setdefault(p.name, shown(p.name, p.default, model_class))
    return found


def test_the_page_lists_the_arguments_of_all_backends_with_their_defaults() -> None:
    listed = {row[0].strip("`"): row[1] for row in tables("| argument | default |")}
    assert listed == defaults(ServedBase)
    assert all(row[2] for row in tables("| argument | default |"))


def test_the_page_lists_what_differs_in_single_backends() -> None:
    common = defaults(ServedBase)
    expected = {
        (name, argument, value)
        for name, model_class in served_backends().items()
        for argument, value in defaults(model_class).items()
        if common.get(argument) != value
    }
    rows = tables("| backend | argument |")
    listed = {(backend.strip("`"), name.strip("`"), value) for backend, name, value, _ in rows}
    # Defaults that come from elsewhere, such as the environment, may be listed in addition.
    assert expected <= listed
    assert all(value == "–" for _, _, value in listed - expected)
    assert {name for name, _, _ in listed} <= set(served_backends())


def test_the_docstring_of_the_class_explains_every_argument() -> None:
    text = inspect.getdoc(ServedBase) or ""
    for name in defaults(ServedBase):
        assert f"{name}:" in text or f"{name}," in text or f", {name}" in text, name
