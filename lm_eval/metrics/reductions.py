"""From the values of a document's repeats to one: the first, their mean, a chance of success.

A reduction is called with `references`, the gold answer, and `predictions`, the metric's values,
one a repeat. It gives one value, or a table of values that it names itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from lm_eval.api.registry import get_reduction, reduction_registry, register_reduction
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


_ALSO = {"pass@k": "pass_at_k", "pass^k": "pass_hat_k"}
_SHORT = re.compile(r"pass(@|\^)(\d+)")


def find_reduction(given: Any) -> Reduction:
    """What a `reduction:` entry means: a name, `pass@8`, a !function, or a table with arguments."""
    if callable(given):
        function: Reduction = given
        return function
    if isinstance(given, Mapping):
        arguments = {**given, **(given.get("kwargs") or {})}
        arguments.pop("kwargs", None)
        name = arguments.pop("function", None) or arguments.pop("name", None)
        return partial(find_reduction(name), **arguments)
    short = _SHORT.fullmatch(str(given))
    if short and given not in reduction_registry:
        return partial(pass_at_k if short[1] == "@" else pass_hat_k, k=int(short[2]))
    if not isinstance(given, str):
        raise ConfigError(
            f"`reduction` must be a name (take_first, mean, pass_at_k, pass@8, pass^8), a "
            f"!function, or a table with `function` and its arguments, not {given!r}."
        )
    return get_reduction(
        "pass_hat_k" if given == "pass^k" else given.replace("pass@k", "pass_at_k")
    )
