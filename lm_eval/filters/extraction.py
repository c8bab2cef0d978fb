"""Find the answer in what the model said."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache
from typing import Any

from lm_eval.api.filter import Filter, NotFound
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError, DataError


def compiled(pattern: str, filter_name: str = "regex") -> re.Pattern[str]:
    """A pattern from a task file, or an error that names it."""
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigError(
            f"filter {filter_name}: the pattern {pattern!r} is not a regular expression: {error}."
        ) from error


def _known(fallback: Any) -> Any:
    """The fallback as a text that can be told from an answer; other values stay as they are."""
    return NotFound(fallback) if isinstance(fallback, str) else fallback


@register_filter("regex")
class RegexFilter(Filter):
    """The text a pattern finds: the `group_select`-th match, or the fallback."""

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: Any = "[invalid]",
    ) -> None:
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = compiled(regex_pattern)
        self.group_select = group_select
        self.fallback = _known(fallback)

    def find(self, regex: re.Pattern[str], answer: Any, otherwise: Any = "") -> Any:
        """The chosen match, stripped; of several groups the first that is not empty."""
        matches = regex.findall(answer) if isinstance(answer, str) else []
        try:
            found = matches[self.group_select]
        except IndexError:
            return otherwise
        if isinstance(found, tuple):
            found = next((part for part in found if part), otherwise)
        return found.strip()

    def extract(self, answer: Any) -> Any:
        return self.find(self.regex, answer, self.fallback)

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        return [[self.extract(answer) for answer in answers] for answers in resps]


@register_filter("regex_pos")
class POSFilter(Filter):
    """The tags of a tagged sentence, from text such as `[('word', 'NOUN'), …]`."""

    _PAIR = re.compile(r"\('([^']*)', '([^']*)'\)")

    def __init__(
        self,
        regex_pattern: str = r"\['(.*?)'\]",
        group_select: int = 0,
        fallback: Any = None,
    ) -> None:
        """Only `fallback` has an effect, as published; the others are taken for compatibility."""
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = compiled(regex_pattern, "regex_pos")
        self.group_select = group_select
        self.fallback = [NotFound("invalid")] if fallback is None else fallback

    def extract(self, answer: Any) -> Any:
        pairs = self._PAIR.findall(answer) if isinstance(answer, str) else answer or []
        return [tag for _, tag in pairs] or self.fallback

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        return [[self.extract(answer) for answer in answers] for answers in resps]


@register_filter("remove_whitespace")
class WhitespaceFilter(Filter):
    """Each answer without the spaces and line ends around it."""

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        return [[answer.strip() for answer in answers] for answers in resps]


@register_filter("multi_choice_regex")
class MultiChoiceRegexFilter(RegexFilter):
    """The letter of the choice an answer means: `(A)`, `(B)` …

    First the pattern is tried; then the text of the choices themselves, which the document holds
    under `choices`; then a letter after a colon. What is to be ignored is ignored in the second.
    """

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: Any = "[invalid]",
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
        regexes_to_ignore: Sequence[str] | None = None,
    ) -> None:
        super().__init__(regex_pattern, group_select, fallback)
        self.ignore_case = ignore_case
        self.ignore_punctuation = ignore_punctuation
        self.regexes_to_ignore = regexes_to_ignore
        self._ignored = [compiled(p, "multi_choice_regex") for p in regexes_to_ignore or ()]

    def without_ignored(self, text: Any) -> str:
        clean: str = text if isinstance(text, str) else ""
        for pattern in self._ignored:
            clean = pattern.sub("", clean)
        if self.ignore_case:
            clean = clean.lower()
        return clean.translate(_punctuation()) if self.ignore_punctuation else clean

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        found: list[list[Any]] = []
        for answers, doc in zip(resps, docs, strict=True):
            letters, texts, after_colon = self._patterns(doc)
            found.append([self._choice(a, letters, texts, after_colon) for a in answers])
        return found

    def _patterns(self, doc: Any) -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
        """Letters by the choices' texts, a pattern for the texts, and one for bare letters."""
        if "choices" not in doc:
            raise DataError(
                "filter multi_choice_regex: the documents have no `choices` to look for; "
                "give them some with process_docs, or use the filter regex."
            )
        letters: dict[str, str] = {}
        names = [chr(ord("A") + number) for number, _ in enumerate(doc["choices"])]
        for name, choice in zip(names, doc["choices"], strict=True):
            letters[self.without_ignored(str(choice).strip())] = f"({name})"
        # The longest first: a choice that begins another must not be found in its place.
        texts = sorted(map(re.escape, letters), key=len, reverse=True)
        after_colon = re.compile(rf":[\s]*({'|'.join(map(re.escape, names))})")
        return letters, re.compile("|".join(texts)), after_colon

    def _choice(
        self,
        answer: Any,
        letters: dict[str, str],
        texts: re.Pattern[str],
        after_colon: re.Pattern[str],
    ) -> Any:
        match = self.find(self.regex, answer)
        if match:
            return match
        match = self.find(texts, self.without_ignored(answer))
        if match:
            return letters.get(match, match)
        match = self.find(after_colon, answer)
        return f"({match})" if match else self.fallback


@cache
def _punctuation() -> dict[int, None]:
    """All of Unicode's punctuation, for `str.translate`; a third of a second, once."""
    every = range(sys.maxunicode)
    return {code: None for code in every if unicodedata.category(chr(code)).startswith("P")}
