"""Choose among the repeated answers to one request."""

from __future__ import annotations

from collections import Counter
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError


@register_filter("take_first")
class TakeFirstFilter(Filter):
    """The first answer alone, no longer in a list."""

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        return [answers[0] for answers in resps]


@register_filter("take_first_k")
class TakeKFilter(Filter):
    """The first k answers."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = k

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        groups = [list(answers) for answers in resps]
        shortest = min(map(len, groups), default=self.k)
        if shortest < self.k:
            raise ConfigError(
                f"filter take_first_k: k is {self.k}, but there are only {shortest} answers a "
                "document; raise the task's `repeats`."
            )
        return [answers[: self.k] for answers in groups]


@register_filter("majority_vote")
class MajorityVoteFilter(Filter):
    """The most frequent answer, as a list of one; on a tie, the one that came first."""

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[Any]:
        return [[Counter(answers).most_common(1)[0][0]] for answers in resps]
