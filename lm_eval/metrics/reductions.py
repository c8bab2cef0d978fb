"""From the values of a document's repeats to one: the first, their mean, a chance of success.

A reduction is called with `references`, the gold answer, and `predictions`, the metric's values,
one a repeat. It gives one value, or a table of values that it names itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lm_eval.api.registry import get_reduction, register_reduction
from lm_eval.errors import ConfigError, DataError
from lm_eval.stats import repeats

Reduction = Callable[..., Any]


@register_reduction("take_first")
def take_first(references: Any, predictions: Sequence[Any]) -> Any:
    """The first repeat's value."""
    return predictions[0]


@register_reduction("mean")
def mean(references: Any, predictions: Sequence[float]) -> float:
    """The mean over the repeats."""
    return sum(predictions) / len(predictions)


@register_reduction("pass_at_k")
def pass_at_k(
    references: Any, predictions: Sequence[float], k: int | Sequence[int] = 1
) -> dict[str, float]:
    """`pass@k`: the chance that one of k answers at least is right, without bias."""
    return _chances("pass@", repeats.pass_at_k, predictions, k)


@register_reduction("pass_hat_k")
def pass_hat_k(
    references: Any, predictions: Sequence[float], k: int | Sequence[int] = 1
) -> dict[str, float]:
    """`pass^k`: the chance that all of k answers are right, without bias."""
    return _chances("pass^", repeats.pass_hat_k, predictions, k)


def _chances(
    name: str,
    chance: Callable[[int, int, int], float],
    values: Sequence[float],
    k: int | Sequence[int],
) -> dict[str, float]:
    odd = next((value for value in values if value not in (0, 1)), None)
    if odd is not None:
        raise DataError(f"{name}k needs a metric that is 1 (right) or 0 (wrong), not {odd!r}.")
    right = sum(map(int, values))
    sizes = [k] if isinstance(k, int) else k
    for size in sizes:
        if not 1 <= size <= len(values):
            raise ConfigError(
                f"{name}{size} needs at least {max(size, 1)} answers a document, and there are "
                f"{len(values)}; raise the task's `repeats`, and let the filters keep them."
            )
    return {f"{name}{size}": chance(len(values), right, size) for size in sizes}


_SHORT = re.compile(r"pass(@|\^)(\d+|k)")


def reduction_name(given: Any) -> str | None:
    """The registered name that a `reduction:` entry goes by; None for a !function or nonsense."""
    if isinstance(given, Mapping):
        given = given.get("function") or given.get("name")
    if not isinstance(given, str):
        return None
    short = _SHORT.fullmatch(given)
    if short:
        return "pass_at_k" if short[1] == "@" else "pass_hat_k"
    return given


def find_reduction(given: Any) -> Reduction:
    """What a `reduction:` entry means: a name, `pass@8`, a !function, or a table with arguments."""
    if callable(given):
        function: Reduction = given
        return function
    if isinstance(given, Mapping):
        inner = given.get("function") or given.get("name")
        arguments = {k: v for k, v in given.items() if k not in ("function", "name", "kwargs")}
        return partial(find_reduction(inner), **arguments, **(given.get("kwargs") or {}))
    name = reduction_name(given)
    if name is None:
        raise ConfigError(
            f"`reduction` must be a name (take_first, mean, pass_at_k, pass@8, pass^8), a "
            f"!function, or a table with `function` and its arguments, not {given!r}."
        )
    size = _SHORT.fullmatch(str(given))
    reduction = get_reduction(name)
    return partial(reduction, k=int(size[2])) if size and size[2] != "k" else reduction
