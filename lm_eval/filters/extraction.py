"""Find the answer in what the model said."""

from __future__ import annotations

import re
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError


@register_filter("regex")
class RegexFilter(Filter):
    """The text a pattern finds: the `group_select`-th match, or the fallback."""

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: str = "[invalid]",
    ) -> None:
        super().__init__()
        self.regex_pattern = regex_pattern
        self.group_select = group_select
        self.fallback = fallback
        try:
            self.regex = re.compile(regex_pattern)
        except re.error as error:
            raise ConfigError(
                f"filter regex: the pattern {regex_pattern!r} is not a regular expression: {error}."
            ) from error

    def extract(self, answer: Any) -> Any:
        """A pattern of several groups gives the first that is not empty."""
        matches = self.regex.findall(answer) if isinstance(answer, str) else []
        try:
            found = matches[self.group_select]
        except IndexError:
            return self.fallback
        if isinstance(found, tuple):
            found = next((part for part in found if part), self.fallback)
        return found.strip()

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        return [[self.extract(answer) for answer in answers] for answers in resps]


@register_filter("remove_whitespace")
class WhitespaceFilter(Filter):
    """Each answer without the spaces and line ends around it."""

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        return [[answer.strip() for answer in answers] for answers in resps]
