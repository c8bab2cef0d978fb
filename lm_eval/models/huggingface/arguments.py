"""What can be said of arguments before anything is loaded."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval.errors import ConfigError, suggestion


def whole_number(name: str, value: Any, least: int) -> int:
    """A number that is whole and not too small, perhaps given as text."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = least - 1
    if number < least or isinstance(value, bool) or number != float(value):
        raise ConfigError(f"{name} is a whole number from {least} on, not {value!r}.")
    return number


def batch_size(value: Any) -> int | str:
    """Most requests at once, or "auto"; `auto:4` is taken for the sake of old command lines."""
    if value is None or re.fullmatch(r"auto(:\d+(\.\d+)?)?", str(value)):
        return "auto"
    try:
        return whole_number("batch_size", value, 1)
    except ConfigError as error:
        raise ConfigError(f"batch_size is 'auto' or a number from 1 on, not {value!r}.") from error


def switch(name: str, value: bool | str) -> bool:
    """On or off, in the words people use on command lines."""
    if isinstance(value, bool):
        return value
    if value in ("on", "auto"):
        return True
    if value == "off":
        return False
    raise ConfigError(f"{name} is on or off, not {value!r}.")


def check(
    *,
    autogptq: Any,
    gptqmodel: Any,
    truncation_side: str,
    enable_thinking: bool | None,
    think_end_token: str | int | None,
    tp_plan: Any,
    parallelize: bool | None,
    peft: str | None,
    delta: str | None,
) -> None:
    """Refuse arguments that are no longer needed, or do not go together."""
    if autogptq or gptqmodel:
        raise ConfigError(
            "autogptq and gptqmodel are not needed: transformers loads GPTQ weights by itself, "
            "given the package gptqmodel. Leave the argument out."
        )
    if truncation_side not in ("left", "right"):
        raise ConfigError(f"truncation_side is 'left' or 'right', not {truncation_side!r}.")
    if enable_thinking and think_end_token is None:
        raise ConfigError("enable_thinking needs think_end_token, to tell thought from answer.")
    if tp_plan is not None and parallelize:
        raise ConfigError("tp_plan and parallelize exclude each other: give one of them.")
    if peft and delta:
        raise ConfigError("peft and delta exclude each other: give one of them.")


def unknown_argument(error: TypeError, made: type) -> ConfigError | None:
    """What a model's constructor did not know, with the nearest name that `made` takes."""
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return None
    known = {
        name
        for kind in made.__mro__
        if "__init__" in vars(kind)
        for name in inspect.signature(vars(kind)["__init__"]).parameters
    }
    return ConfigError(
        f"model_args: neither {made.__name__} nor the model takes an argument "
        f"{found[1]!r}.{suggestion(found[1], known - {'self', 'args', 'kwargs'})}"
    )


def taken_by(
    function: Callable[..., Any], options: Mapping[str, Any], defaults: Callable[..., Any]
) -> dict[str, Any]:
    """Of some options those that a function has parameters for: a subclass may have fewer.

    What is set to something else than the default, that of the parameters of `defaults`, is left
    for it to refuse.
    """
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(options)
    usual = inspect.signature(defaults).parameters

    def is_usual(name: str, value: Any) -> bool:
        return name in usual and (value is usual[name].default or value == usual[name].default)

    return {n: v for n, v in options.items() if n in parameters or not is_usual(n, v)}
