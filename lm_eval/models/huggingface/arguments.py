"""Checks and parses model arguments before anything is loaded."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval.errors import ConfigError, suggestion


def parse_integer(name: str, value: Any, minimum: int) -> int:
    """Returns `value` as an integer: an int, a float without fraction, or the text of an integer.

    Raises `ConfigError`, which names the argument `name`, for anything else, for booleans, and if
    it is less than `minimum`.
    """
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        number = minimum - 1
    if number < minimum or isinstance(value, bool) or number != float(value):
        raise ConfigError(f"{name} must be an integer of at least {minimum}, not {value!r}.")
    return number


def parse_batch_size(value: Any) -> int | str:
    """Returns the maximum number of requests per batch, or "auto".

    None and `auto:N`, which published command lines use, mean "auto". Raises `ConfigError` for
    anything else that is not a positive integer.
    """
    if value is None or re.fullmatch(r"auto(:\d+(\.\d+)?)?", str(value)):
        return "auto"
    try:
        return parse_integer("batch_size", value, 1)
    except ConfigError as error:
        raise ConfigError(
            f"batch_size must be 'auto' or an integer of at least 1, not {value!r}."
        ) from error


def parse_switch(name: str, value: bool | str) -> bool:
    """Returns a boolean argument that may be given as text.

    True and False are returned unchanged; "on" and "auto" mean True, "off" means False. Raises
    `ConfigError`, which names the argument `name`, for any other value.
    """
    if isinstance(value, bool):
        return value
    if value in ("on", "auto"):
        return True
    if value == "off":
        return False
    raise ConfigError(f"{name} must be 'on' or 'off', not {value!r}.")


def check_arguments(
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
    """Raises `ConfigError` for arguments that are obsolete, invalid or contradict each other.

    Obsolete are `autogptq` and `gptqmodel`. `truncation_side` must be "left" or "right", and
    `enable_thinking` needs `think_end_token`. `tp_plan` and `parallelize` exclude each other, and
    so do `peft` and `delta`.
    """
    if autogptq or gptqmodel:
        raise ConfigError(
            "the arguments autogptq and gptqmodel are not needed: transformers loads GPTQ weights "
            "by itself if the package gptqmodel is installed. Remove the argument."
        )
    if truncation_side not in ("left", "right"):
        raise ConfigError(f"truncation_side must be 'left' or 'right', not {truncation_side!r}.")
    if enable_thinking and think_end_token is None:
        raise ConfigError(
            "enable_thinking needs think_end_token, which separates the thinking from the answer. "
            "Add think_end_token=… (for example </think>)."
        )
    if tp_plan is not None and parallelize:
        raise ConfigError("tp_plan and parallelize exclude each other: remove one of them.")
    if peft and delta:
        raise ConfigError("peft and delta exclude each other: remove one of them.")


def unknown_argument_error(error: TypeError, model_class: type) -> ConfigError | None:
    """Returns a `ConfigError` for a keyword argument that a model's constructor did not accept.

    It suggests the most similar argument names of the class `model_class`. Returns None if `error`
    is a `TypeError` of another kind.
    """
    found = re.search(r"unexpected keyword argument '(\w+)'", str(error))
    if found is None:
        return None
    known = {
        name
        for kind in model_class.__mro__
        if "__init__" in vars(kind)
        for name in inspect.signature(vars(kind)["__init__"]).parameters
    }
    return ConfigError(
        f"model_args: neither {model_class.__name__} nor the model accepts an argument "
        f"{found[1]!r}.{suggestion(found[1], known - {'self', 'args', 'kwargs'})}"
    )


def accepted_options(
    function: Callable[..., Any], options: Mapping[str, Any], defaults: Callable[..., Any]
) -> dict[str, Any]:
    """Returns those of the `options` that can be passed to `function` as keyword arguments.

    `function` may be a subclass's method with fewer parameters than the original. Options without a
    parameter in `function` are dropped if they have their default value, as found in the signature
    of `defaults`. Other options are passed on, so that `function` itself raises the `TypeError`
    about them. If `function` accepts `**kwargs`, all options are returned.
    """
    parameters = inspect.signature(function).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return dict(options)
    default_parameters = inspect.signature(defaults).parameters

    def is_default(name: str, value: Any) -> bool:
        if name not in default_parameters:
            return False
        default = default_parameters[name].default
        return value is default or value == default

    return {n: v for n, v in options.items() if n in parameters or not is_default(n, v)}
