"""A filter that is the task folder's own function."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter


@register_filter("custom")
class CustomFilter(Filter):
    """Calls `filter_fn(resps, docs)`."""

    def __init__(self, filter_fn: Callable[[Any, Any], Iterable[Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filter_fn = filter_fn

    def apply(self, resps: Any, docs: Any) -> Iterable[Any]:
        return self.filter_fn(resps, docs)
