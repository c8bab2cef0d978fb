"""Reductions: functions that combine the values of a document's repeated answers into one value.

A reduction is called as `reduction(references=gold, predictions=values)`. `gold` is the gold answer
of the document, and `values` the metric's value for each repeated answer. It returns one value, or
a mapping from names to values, such as `{"pass@1": 0.5}`. Task files name a reduction in an entry
of `metric_list`; `lm_eval.api.registry.register_reduction` adds one.
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
    """Returns the value of the first answer; `references` is not used."""
    return predictions[0]


@register_reduction("mean")
def mean(references: Any, predictions: Sequence[float]) -> float:
    """Returns the mean of the values; `references` is not used."""
    return sum(predictions) / len(predictions)


@register_reduction("pass_at_k")
def pass_at_k(
    references: Any, predictions: Sequence[float], k: int | Sequence[int] = 1
) -> dict[str, float]:
    """Returns `{"pass@k": p}`, the probability that at least one of `k` answers is correct.

    The estimate is unbiased. `k` may be a list, which gives one value for each. The values in
    `predictions` must be 1 (correct) or 0 (wrong); otherwise `DataError` is raised. Raises
    `ConfigError` if there are fewer than `k` of them, or `k` is below 1. `references` is not used.
    """
    return _pass_rates("pass@", repeats.pass_at_k, predictions, k)


@register_reduction("pass_hat_k")
def pass_hat_k(
    references: Any, predictions: Sequence[float], k: int | Sequence[int] = 1
) -> dict[str, float]:
    """Returns `{"pass^k": p}`, the probability that all of `k` answers are correct.

    The estimate is unbiased. `k` may be a list, which gives one value for each. The values in
    `predictions` must be 1 (correct) or 0 (wrong); otherwise `DataError` is raised. Raises
    `ConfigError` if there are fewer than `k` of them, or `k` is below 1. `references` is not used.
    """
    return _pass_rates("pass^", repeats.pass_hat_k, predictions, k)


def _pass_rates(
    name: str,
    estimate: Callable[[int, int, int], float],
    values: Sequence[float],
    k: int | Sequence[int],
) -> dict[str, float]:
    """Returns one estimate for each size in `k`, under `name` followed by the size.

    `estimate(count, correct, size)` computes the estimate. Raises `DataError` if a value is neither
    1 nor 0, and `ConfigError` if there are fewer answers than a size needs.
    """
    invalid = next((value for value in values if value not in (0, 1)), None)
    if invalid is not None:
        raise DataError(
            f"{name}k needs a metric whose value is 1 (correct) or 0 (wrong), not {invalid!r}."
        )
    correct = sum(map(int, values))
    sizes = [k] if isinstance(k, int) else k
    for size in sizes:
        if not 1 <= size <= len(values):
            raise ConfigError(
                f"{name}{size} needs at least {max(size, 1)} answers per document, but there are "
                f"{len(values)}. Raise the task's `repeats`, and use filters that keep all answers."
            )
    return {f"{name}{size}": estimate(len(values), correct, size) for size in sizes}


def with_enough_repeats(reduction: Reduction, repeats: int) -> Reduction:
    """Returns the reduction; raises `ConfigError` if it needs more answers than `repeats`.

    Found out before the model is asked. `repeats` is how often the task asks for an answer.
    """
    given = reduction.keywords if isinstance(reduction, partial) else {}
    function = reduction.func if isinstance(reduction, partial) else reduction
    if function in (pass_at_k, pass_hat_k):
        k = given.get("k", 1)
        for size in k if isinstance(k, (list, tuple)) else [k]:
            if type(size) is not int or not 1 <= size <= repeats:
                raise ConfigError(
                    f"`reduction`: pass@k or pass^k with k={size!r} needs an integer k of at least "
                    f"1 and as many answers per document, but the task's `repeats` is {repeats}. "
                    "Raise `repeats`, or choose a smaller k."
                )
    return reduction


_SHORTHAND = re.compile(r"pass(@|\^)(\d+|k)")


def reduction_name(given: Any) -> str | None:
    """Returns the registered name of the reduction in a task file, such as pass_at_k for `pass@8`.

    `given` is the value of `reduction:`; of a mapping, its `function` (or `name`) counts. Any other
    string is returned as it is, also if it is not registered. Returns None if there is no name, as
    for a `!function`.
    """
    if isinstance(given, Mapping):
        given = given.get("function") or given.get("name")
    if not isinstance(given, str):
        return None
    shorthand = _SHORTHAND.fullmatch(given)
    if shorthand:
        return "pass_at_k" if shorthand[1] == "@" else "pass_hat_k"
    return given


def find_reduction(given: Any) -> Reduction:
    """Returns the reduction function of a task file, with its arguments bound.

    `given` is the value of `reduction:`: a registered name, a shorthand like `pass@8`, a function,
    or a mapping with the key `function` (or `name`) and further arguments. Raises `ConfigError`
    if it is none of these, and `UnknownNameError` if the name is not registered.
    """
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
            f"!function, or a mapping with `function` and its arguments, not {given!r}."
        )
    size = _SHORTHAND.fullmatch(str(given))
    reduction = get_reduction(name)
    return partial(reduction, k=int(size[2])) if size and size[2] != "k" else reduction
