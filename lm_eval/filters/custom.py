"""The `custom` filter, which calls a function from a task folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter


@register_filter("custom")
class CustomFilter(Filter):
    """A filter that returns `filter_fn(resps, docs)`.

    In a task file: `{function: custom, filter_fn: !function utils.my_filter}`. The function has the
    arguments and return value of `Filter.apply`: `resps` holds one list of answers per request,
    `docs` the document of each request, and it returns one item per request, in the same order.
    """

    def __init__(self, filter_fn: Callable[[Any, Any], Iterable[Any]], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.filter_fn = filter_fn

    def apply(self, resps: Any, docs: Any) -> Iterable[Any]:
        """Returns `filter_fn(resps, docs)`."""
        return self.filter_fn(resps, docs)
