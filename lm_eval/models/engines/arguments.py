"""Checks the arguments of engines before anything is loaded."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from lm_eval.errors import ConfigError, suggestion
from lm_eval.models.context_length import own_length
from lm_eval.models.planned.jobs import Sampling


def as_integer(name: str, value: Any) -> int:
    """Returns an argument as an integer; raises `ConfigError`, which names it, if it is none."""
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} must be an integer, not {value!r}.") from error


def restrict_settings(sampling: Sampling, engine: str, names: Iterable[str]) -> Sampling:
    """Returns `sampling` after checking that all of `sampling.others` are among `names`.

    `names` are the settings that the engine accepts; raises `ConfigError` for another one, with
    `engine` in the message. Before that, a setting `seed` is taken out and becomes the seed of
    sampled answers, and `num_beams=1`, which has no effect, is left out.
    """
    others = dict(sampling.others)
    seed = others.pop("seed", None)
    if others.get("num_beams") == 1:  # published tasks set it; it has no effect
        del others["num_beams"]
    known = set(names)
    for name in others:
        if name not in known:
            raise ConfigError(
                f"generation settings (gen_kwargs): {engine} has no {name!r}."
                f"{suggestion(name, known)}"
            )
    if seed is not None and sampling.seed is not None:
        sampling = replace(sampling, seed=as_integer("seed", seed))
    return replace(sampling, others=others)


def read_length(**given: Any) -> int | None:
    """Returns the context length, which may be given under several names; None if it is not.

    Raises `ConfigError` if two are given, or if one is not a number of at least 2.
    """
    chosen = {name: value for name, value in given.items() if value is not None}
    if len(chosen) > 1:
        raise ConfigError(f"{' and '.join(chosen)} mean the same; pass only one of them.")
    for name, value in chosen.items():
        length = as_integer(name, value)
        if length < 2:
            raise ConfigError(f"{name} must be 2 or more, not {value}.")
        return length
    return None


def given_length(arguments: Mapping[str, Any], names: Iterable[str]) -> tuple[str, int] | None:
    """Returns the argument among `names` that sets the context length, and the length.

    None if it is not given. Raises as `read_length` does.
    """
    chosen = {name: arguments.get(name) for name in names}
    length = read_length(**chosen)
    name = next((name for name, value in chosen.items() if value is not None), None)
    return None if name is None or length is None else (name, length)


def check_long_prompts(arguments: Mapping[str, Any]) -> None:
    """Raises `ConfigError` if `long_prompts` is neither "refuse" nor "cut"."""
    value = arguments.get("long_prompts", "refuse")
    if value not in ("refuse", "cut"):
        raise ConfigError(f"long_prompts must be 'refuse' or 'cut', not {value!r}.")


def check_lengths(arguments: Mapping[str, Any], names: Iterable[str], variable: str | None) -> None:
    """Raises `ConfigError` for lengths that cannot work.

    Those are a context length that is larger than the model's own, and a maximum length of answers
    that leaves no room for a prompt.

    Args:
        arguments: the `model_args` of the run.
        names: the names that the context length may have.
        variable: the environment variable with which the engine accepts a larger context length.
    """
    length = read_length(**{name: arguments.get(name) for name in names})
    own = own_length(arguments)
    allowed = variable is not None and os.environ.get(variable) == "1"
    if length is not None and own is not None and length > own and not allowed:
        remedy = "" if variable is None else f", or set {variable}=1"
        raise ConfigError(
            f"the context length of {length} is larger than that of the model, {own} "
            f"(max_position_embeddings in its config.json). Pass a smaller one{remedy}."
        )
    answer = as_integer("max_gen_toks", arguments.get("max_gen_toks") or 0)
    known = length or own
    if known is not None and answer > known - 2:
        raise ConfigError(
            f"max_gen_toks={answer} leaves no room for a prompt: the context length is {known} "
            "tokens. Pass a smaller max_gen_toks."
        )


def check_quantization(engine: str, name: str, known: Iterable[str]) -> None:
    """Raises `ConfigError` if an engine knows no quantization method of that name."""
    methods = list(known)
    if name not in methods:
        raise ConfigError(
            f"quantization: {engine} has no method {name!r}.{suggestion(name, methods)}"
        )


def unknown_argument(engine: str, given: Iterable[str], known: Iterable[str]) -> ConfigError | None:
    """Returns an error about the first argument that an engine does not have; None if it has all.

    The error suggests the nearest names.
    """
    names = set(known)
    for name in given:
        if name not in names:
            return ConfigError(
                f"model_args: {engine} has no argument {name!r}.{suggestion(name, names)}"
            )
    return None
