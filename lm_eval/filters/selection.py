"""Filters that choose among the repeated answers to one request."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError


@register_filter("take_first")
class TakeFirstFilter(Filter):
    """Takes the first answer to each request, as a single value instead of a list."""

    ONLY_READS = True

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        """Returns the first answer to each request."""
        return [answers[0] for answers in resps]


@register_filter("take_first_k")
class TakeKFilter(Filter):
    """Keeps the first `k` answers to each request, as a list.

    Raises `ConfigError` when it is applied to a request with fewer than `k` answers.
    """

    selects_repeats = True

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        """Returns a list of `k` answers per request; raises `ConfigError` if there are fewer."""
        groups = [list(answers) for answers in resps]
        shortest = min(map(len, groups), default=self.k)
        if shortest < self.k:
            raise ConfigError(
                f"filter take_first_k: k is {self.k}, but a document has fewer answers "
                f"({shortest}). Set the task's `repeats` to at least {self.k}, or lower k."
            )
        return [answers[: self.k] for answers in groups]


@register_filter("majority_vote")
class MajorityVoteFilter(Filter):
    """Takes the most frequent answer to each request, as a list with one element.

    On a tie, the answer that was generated first is taken.
    """

    selects_repeats = True

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        """Returns a list per request, with its most frequent answer as the only element."""
        return [[Counter(answers).most_common(1)[0][0]] for answers in resps]
