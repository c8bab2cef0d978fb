"""Filters that rewrite each answer separately."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError


@register_filter("lowercase")
class LowercaseFilter(Filter):
    """Converts each answer to lower case."""

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        """Returns a list per request, with each answer in lower case; answers must be strings."""
        return [[answer.lower() for answer in answers] for answers in resps]


@register_filter("uppercase")
class UppercaseFilter(Filter):
    """Converts each answer to upper case."""

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        """Returns a list per request, with each answer in upper case; answers must be strings."""
        return [[answer.upper() for answer in answers] for answers in resps]


@register_filter("map")
class MapFilter(Filter):
    """Replaces each answer by its value in a mapping."""

    def __init__(
        self, mapping_dict: dict[Hashable, Any] | None = None, default_value: Any = None
    ) -> None:
        """Stores the mapping.

        Args:
            mapping_dict: the replacement of each answer; None means an empty mapping.
            default_value: the replacement of answers that are not in `mapping_dict`.

        Raises:
            ConfigError: `mapping_dict` is not a mapping.
        """
        super().__init__()
        if not isinstance(mapping_dict or {}, dict):
            raise ConfigError(f"filter map: mapping_dict must be a mapping, not {mapping_dict!r}.")
        self.mapping_dict = mapping_dict or {}
        self.default_value = default_value

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        """Returns a list per request, with the replacement of each answer."""
        return [
            [self.mapping_dict.get(answer, self.default_value) for answer in answers]
            for answers in resps
        ]


#: What models write for the types of named entities, and the tag of each. They are replaced in
#: this order.
_ENTITY_TAGS = {
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
_ENTITY_PATTERNS = [
    (re.compile(rf"\b{entity_type}\s*:"), f"{tag}:") for entity_type, tag in _ENTITY_TAGS.items()
]
_SPAN = re.compile(r"\b(PER|LOC|ORG|DATE):\s*([^$]+)")


@register_filter("format_span")
class SPANFilter(Filter):
    """Rewrites lists of named entities in one uniform format, in lower case.

    Example: `Person: Ann $$ Places: Rome, Oslo` becomes `per: ann $ loc: rome $ loc: oslo`.
    """

    def __init__(self) -> None:
        super().__init__()

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        """Returns a list per request, with each answer changed by `rewrite`."""
        return [[self.rewrite(answer) for answer in answers] for answers in resps]

    @staticmethod
    def rewrite(answer: str) -> str:
        """Returns the entities in `answer` as `tag: name` items, joined by ` $ `; "" if none.

        The tags are per, loc, org and date. Entities called "none" are left out.
        """
        text = answer.lower()
        for pattern, tag in _ENTITY_PATTERNS:
            text = pattern.sub(tag, text)
        text = text.replace("$$", "$").rstrip("$").replace("\n", "$").strip()
        spans = [
            f"{tag.lower()}: {name.strip()}"
            for tag, names in _SPAN.findall(text)
            for name in names.split(",")
            if name.strip().lower() != "none"
        ]
        return " $ ".join(spans)
