"""Requests that are asked several times: expanded for the model, grouped again for scoring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


def repeated(requests: Sequence[Instance]) -> Sequence[Instance]:
    """Returns the requests with each one occurring as often as it is asked."""
    if all(request.repeats in (1, None) for request in requests):
        return requests
    return [request for request in requests for _ in range(request.repeats or 1)]


def grouped(requests: Iterable[Instance], answers: Iterable[Any]) -> list[list[Any]]:
    """Returns the list of answers of each request; the inverse of `repeated`."""
    given = iter(answers)
    return [[next(given) for _ in range(request.repeats or 1)] for request in requests]
