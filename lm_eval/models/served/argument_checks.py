"""Checks the arguments of our own classes for served models, before a run begins.

Their constructors accept any keyword, since third-party subclasses pass their own.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Mapping
from typing import Any

from lm_eval.errors import ConfigError, suggestion
from lm_eval.models import MODEL_MAPPING
from lm_eval.models.served.base import ServedBase

#: Settings of a run that are passed to every class with `**kwargs`, and have no effect on a server.
WITHOUT_EFFECT = {"device", "max_batch_size"}


def registered_name(model_class: type) -> str:
    """Returns the first name of a model class in our registry, else the name of the class."""
    target = f"{model_class.__module__}:{model_class.__name__}"
    return next((n for n, found in MODEL_MAPPING.items() if found == target), model_class.__name__)


def check_arguments(model_class: type, name: str, arguments: Mapping[str, Any]) -> None:
    """Raises `ConfigError` for an argument that neither the class nor a base class of it takes.

    `arguments` are the `model_args` of the run, and `name` is the name of the model in the message.
    """
    constructors = [
        vars(base)["__init__"]
        for base in model_class.__mro__
        if "__init__" in vars(base) and issubclass(base, ServedBase)
    ]
    known = dict.fromkeys(
        p.name
        for constructor in constructors
        for p in list(inspect.signature(constructor).parameters.values())[1:]
        if p.kind is not p.VAR_KEYWORD
    )
    for argument in arguments:
        if argument not in known and argument not in WITHOUT_EFFECT:
            raise ConfigError(
                f"model_args: the model {name!r} takes no argument {argument!r}."
                f"{suggestion(argument, known)} Its arguments are: {', '.join(known)}."
            )


def check_key(model_class: type[ServedBase], arguments: Mapping[str, Any]) -> None:
    """Raises `ConfigError` if the API key that a server needs is missing.

    `arguments` are the `model_args`. The message names the environment variable to set.
    """
    named = arguments.get("api_key_env")
    variable = named or model_class.key_variable
    given = arguments.get("auth_token") or arguments.get("header") or os.environ.get(variable)
    if not given and (named or model_class.key_is_required):
        raise ConfigError(f"the API key is missing: set the environment variable {variable}.")
