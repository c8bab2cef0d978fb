"""Requests with repeats: expanded before they are sent to the model, grouped for scoring."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lm_eval.api.instance import Instance


def repeated(requests: Sequence[Instance]) -> Sequence[Instance]:
    """Returns the requests with each one occurring `Instance.repeats` times in a row.

    `repeats` of None counts as 1. Returns `requests` itself if no request has repeats.
    """
    if all(request.repeats in (1, None) for request in requests):
        return requests
    return [request for request in requests for _ in range(request.repeats or 1)]


def grouped(requests: Iterable[Instance], answers: Iterable[Any]) -> list[list[Any]]:
    """Returns one list of answers per request, with one answer per repeat.

    `answers` is in the order of `repeated(requests)` and must not be shorter; surplus answers are
    ignored.
    """
    given = iter(answers)
    return [[next(given) for _ in range(request.repeats or 1)] for request in requests]
