"""P-values of many tests at once, corrected so that false discoveries stay rare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[np.float64]]


def holm(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected by Holm's method, in the order given.

    Calling those below α significant makes any false discovery at most α likely, however the tests
    depend on each other.
    """
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    factors = np.arange(len(values), 0, -1)
    corrected = np.minimum(1.0, np.maximum.accumulate(values[order] * factors))
    return _in_order(corrected, order)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Returns p-values corrected by the method of Benjamini and Hochberg, in the order given.

    Of those below α, a share of at most α is expected to be false discoveries, if the tests are
    independent or positively dependent.
    """
    values = np.asarray(p_values, dtype=float)
    order = np.argsort(values, kind="stable")
    factors = len(values) / np.arange(1, len(values) + 1)
    scaled = (values[order] * factors)[::-1]
    corrected = np.minimum(1.0, np.minimum.accumulate(scaled)[::-1])
    return _in_order(corrected, order)


def _in_order(sorted_values: Array, order: np.ndarray[Any, np.dtype[np.intp]]) -> list[float]:
    values = np.empty(len(order))
    values[order] = sorted_values
    return [float(value) for value in values]
