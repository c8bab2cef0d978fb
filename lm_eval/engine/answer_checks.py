"""Checks of answers: which values a model may return, and a store may contain, per request type.

Python, numpy and torch numbers and booleans are accepted and become Python values. Text never
stands for a number or a boolean.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

from lm_eval.api.instance import Completion, Failure

#: A log-likelihood may exceed 0 by this much. Sums in half precision are that inexact.
POSITIVE_TOLERANCE = 0.1

#: What a model must return, by request type, for error messages.
EXPECTED = {
    "loglikelihood": "a pair: a log-likelihood (a number, at most 0 and not NaN), and whether "
    "greedy decoding gives the continuation (True or False)",
    "loglikelihood_rolling": "a log-likelihood (a number, at most 0 and not NaN)",
    "generate_until": "a string",
}

_PLAIN_TYPES = (float, str, int, bool, type(None), Failure)


def as_python(answer: Any) -> Any:
    """Returns an answer with numpy and torch scalars as Python numbers, and pairs as tuples.

    A pair is a list, a tuple or a one-dimensional array of two items. Any other answer is returned
    unchanged.
    """
    if type(answer) in _PLAIN_TYPES:
        return answer
    if type(answer) is tuple and len(answer) == 2:
        value, greedy = answer
        is_plain = type(value) in _PLAIN_TYPES and type(greedy) in _PLAIN_TYPES
        return answer if is_plain else (as_python(value), as_python(greedy))
    if isinstance(answer, (list, tuple)) and len(answer) == 2:
        return as_python(tuple(answer))
    dimensions = getattr(answer, "ndim", None)
    if dimensions == 0 or (dimensions == 1 and len(answer) == 1):
        return answer.item()
    return tuple(answer.tolist()) if dimensions == 1 and len(answer) == 2 else answer


def is_answer(kind: str, value: Any) -> bool:
    """Returns whether `value` is a valid answer to a request of type `kind`.

    Call it with what `as_python` returned. A `Failure` is not an answer.
    """
    return _IS_ANSWER[kind](value)


def to_stored(kind: str, value: Any) -> Any:
    """Returns a valid answer in the types that the store returns: float, bool and str."""
    return _TO_STORED[kind](value)


def _is_log_likelihood(value: Any) -> bool:
    """Returns whether `value` is a real number of at most 0, apart from rounding; -inf is one."""
    if type(value) is not float and not isinstance(value, Real):
        return False
    return bool(value <= POSITIVE_TOLERANCE)  # False for NaN


def _is_pair(answer: Any) -> bool:
    if not isinstance(answer, (tuple, list)) or len(answer) != 2:
        return False
    value, greedy = answer
    return _is_log_likelihood(value) and (type(greedy) is bool or isinstance(greedy, Real))


def _plain_pair(answer: Any) -> tuple[float, bool]:
    value, greedy = answer
    if type(answer) is tuple and type(value) is float and type(greedy) is bool:
        return answer
    return (_as_float(value), bool(greedy))


def _as_float(value: Any) -> float:
    try:
        return float(value)
    except OverflowError:  # an integer or fraction below the range of floats
        return -float("inf")


def _plain_text(answer: str) -> str:
    return answer if type(answer) in (str, Completion) else str(answer)


_IS_ANSWER: dict[str, Callable[[Any], bool]] = {
    "loglikelihood": _is_pair,
    "loglikelihood_rolling": _is_log_likelihood,
    "generate_until": lambda answer: isinstance(answer, str),
}
_TO_STORED: dict[str, Callable[[Any], Any]] = {
    "loglikelihood": _plain_pair,
    "loglikelihood_rolling": _as_float,
    "generate_until": _plain_text,
}
