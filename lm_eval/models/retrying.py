"""A decorator that retries, for third-party model classes that call an API."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any


def retry_on_specific_exceptions(
    on_exceptions: Sequence[type[Exception]],
    max_retries: int | None = None,
    backoff_time: float = 3.0,
    backoff_multiplier: float = 1.5,
    on_exception_callback: Callable[[Exception, float], Any] | None = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Returns a decorator that calls a function again when it raises one of `on_exceptions`.

    Args:
        on_exceptions: the types of exceptions after which to try again; others are raised.
        max_retries: the number of attempts; the exception of the last one is raised. None: no
            limit.
        backoff_time: seconds before the second attempt.
        backoff_multiplier: how many times longer each further wait is.
        on_exception_callback: called with each exception and the seconds until the next attempt.
    """

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def retried(*args: Any, **kwargs: Any) -> Any:
            wait, attempts = backoff_time, 0
            while True:
                try:
                    return function(*args, **kwargs)
                except tuple(on_exceptions) as error:
                    attempts += 1
                    if attempts == max_retries:
                        raise
                    if on_exception_callback is not None:
                        on_exception_callback(error, wait)
                time.sleep(wait)
                wait *= backoff_multiplier

        return retried

    return decorate
