"""Rewrite each answer by itself."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError


@register_filter("lowercase")
class LowercaseFilter(Filter):
    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        return [[answer.lower() for answer in answers] for answers in resps]


@register_filter("uppercase")
class UppercaseFilter(Filter):
    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        return [[answer.upper() for answer in answers] for answers in resps]


@register_filter("map")
class MapFilter(Filter):
    """Replace each answer by what a table says, or by the default."""

    def __init__(
        self, mapping_dict: dict[Hashable, Any] | None = None, default_value: Any = None
    ) -> None:
        super().__init__()
        if not isinstance(mapping_dict or {}, dict):
            raise ConfigError(f"filter map: mapping_dict is not a table: {mapping_dict!r}.")
        self.mapping_dict = mapping_dict or {}
        self.default_value = default_value

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        return [
            [self.mapping_dict.get(answer, self.default_value) for answer in answers]
            for answers in resps
        ]


#: What models call the kinds of things, in the order they are replaced.
_KINDS = {
    "person": "PER",
    "location": "LOC",
    "organization": "ORG",
    "counties": "LOC",
    "places": "LOC",
    "people": "PER",
    "persons": "PER",
    "company": "ORG",
    "country": "LOC",
    "continent": "LOC",
    "time": "DATE",
    "date": "DATE",
    "per": "PER",
    "loc": "LOC",
    "org": "ORG",
}
_KIND_PATTERNS = [(re.compile(rf"\b{kind}\s*:"), f"{tag}:") for kind, tag in _KINDS.items()]
_SPAN = re.compile(r"\b(PER|LOC|ORG|DATE):\s*([^$]+)")


@register_filter("format_span")
class SPANFilter(Filter):
    """Named things in one spelling: `Person: Ann $$ Places: Rome, Oslo` becomes
    `per: ann $ loc: rome $ loc: oslo`.
    """

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        return [[self.rewrite(answer) for answer in answers] for answers in resps]

    @staticmethod
    def rewrite(answer: str) -> str:
        text = answer.lower()
        for pattern, tag in _KIND_PATTERNS:
            text = pattern.sub(tag, text)
        text = text.replace("$$", "$").rstrip("$").replace("\n", "$").strip()
        spans = [
            f"{tag.lower()}: {name.strip()}"
            for tag, names in _SPAN.findall(text)
            for name in names.split(",")
            if name.strip().lower() != "none"
        ]
        return " $ ".join(spans)
