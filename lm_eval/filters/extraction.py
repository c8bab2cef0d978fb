"""Filters that find the answer in a text that the model generated."""

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


def compile_pattern(pattern: str, filter_name: str = "regex") -> re.Pattern[str]:
    """Returns the compiled regular expression `pattern` of a task file.

    Raises `ConfigError`, with `filter_name` and the pattern in the message, if it is invalid.
    """
    try:
        return re.compile(pattern)
    except (re.error, TypeError) as error:
        raise ConfigError(
            f"filter {filter_name}: the pattern {pattern!r} is not a valid regular expression: "
            f"{error}."
        ) from error


def _mark_fallback(fallback: Any) -> Any:
    """Returns a string `fallback` as a `NotFound`, so that failed extractions can be counted.

    `NotFound` is a `str` that compares equal to the text. Values of other types are unchanged.
    """
    return NotFound(fallback) if isinstance(fallback, str) else fallback


@register_filter("regex")
class RegexFilter(Filter):
    """Extracts the text that a regular expression matches in each answer.

    Example: with `regex_pattern: "answer is ([0-9]+)"`, "The answer is 42." becomes "42".
    """

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: Any = "[invalid]",
    ) -> None:
        """Compiles the pattern.

        Args:
            regex_pattern: the pattern, with capturing groups around the text to extract.
            group_select: the index of the match to take among all matches in the answer, not of a
                capturing group. -1 takes the last match.
            fallback: the value that replaces an answer without such a match.

        Raises:
            ConfigError: `regex_pattern` is not a valid regular expression.
        """
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = compile_pattern(regex_pattern)
        self.group_select = group_select
        self.fallback = _mark_fallback(fallback)

    def find(self, regex: re.Pattern[str], answer: Any, default: Any = "") -> Any:
        """Returns match number `group_select` of `regex` in `answer`, without surrounding spaces.

        If the pattern has several groups, returns the first one that is not empty or, if all are
        empty, `default`, without surrounding spaces if it is a string. Returns `default` unchanged
        if there is no such match, or if `answer` is not a string.
        """
        matches = regex.findall(answer) if isinstance(answer, str) else []
        try:
            found = matches[self.group_select]
        except IndexError:
            return default
        if isinstance(found, tuple):
            found = next((part for part in found if part), default)
        return found.strip() if isinstance(found, str) else found

    def extract(self, answer: Any) -> Any:
        """Returns the text that the pattern finds in `answer`, or the fallback."""
        return self.find(self.regex, answer, self.fallback)

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        """Returns a list per request, with what `extract` finds in each answer."""
        return [[self.extract(answer) for answer in answers] for answers in resps]


@register_filter("regex_pos")
class POSFilter(Filter):
    """Extracts part-of-speech tags: `[('dogs', 'NOUN'), ('bark', 'VERB')]` gives NOUN and VERB.

    Each answer becomes a list of tags, in order.
    """

    _PAIR = re.compile(r"\('([^']*)', '([^']*)'\)")

    def __init__(
        self,
        regex_pattern: str = r"\['(.*?)'\]",
        group_select: int = 0,
        fallback: Any = None,
    ) -> None:
        """Sets the value of answers without tags.

        Args:
            regex_pattern: must be valid, but has no effect, as in the published harness.
            group_select: has no effect, as in the published harness.
            fallback: the value of an answer without tags; None means `["invalid"]`.
        """
        super().__init__()
        self.regex_pattern = regex_pattern
        self.regex = compile_pattern(regex_pattern, "regex_pos")
        self.group_select = group_select
        self.fallback = [NotFound("invalid")] if fallback is None else fallback

    def extract(self, answer: Any) -> Any:
        """Returns the list of tags in `answer`, a string or a list of `(word, tag)` pairs.

        Returns the fallback if there are none.
        """
        pairs = self._PAIR.findall(answer) if isinstance(answer, str) else answer or []
        return [tag for _, tag in pairs] or self.fallback

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        """Returns a list per request, with the list of tags in each answer."""
        return [[self.extract(answer) for answer in answers] for answers in resps]


@register_filter("remove_whitespace")
class WhitespaceFilter(Filter):
    """Strips leading and trailing whitespace from each answer."""

    def apply(self, resps: Any, docs: Any) -> list[list[str]]:
        """Returns a list per request, with each answer stripped; answers must be strings."""
        return [[answer.strip() for answer in answers] for answers in resps]


@register_filter("multi_choice_regex")
class MultiChoiceRegexFilter(RegexFilter):
    """Extracts the letter of the choice that an answer names: `(A)`, `(B)` …

    Every document must have a list `choices`. Three ways are tried in this order:

    1. `regex_pattern` is matched in the answer, and its match is returned as it is.
    2. The text of a choice is searched for in the answer, and its letter is returned. Case,
       punctuation and patterns that are to be ignored are removed from both first.
    3. A bare letter after a colon (": B") is searched for.

    If all of them find nothing, the answer becomes the fallback.
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
        """Compiles the patterns.

        Args:
            regex_pattern: the pattern that is tried first.
            group_select: the index of the match to take, in all three ways; -1 is the last.
            fallback: the value that replaces an answer in which no choice was found.
            ignore_case: whether to compare the text of choices in lower case.
            ignore_punctuation: whether to compare the text of choices without punctuation.
            regexes_to_ignore: patterns whose matches are removed before strings are compared.

        Raises:
            ConfigError: a pattern is not a valid regular expression.
        """
        super().__init__(regex_pattern, group_select, fallback)
        self.ignore_case = ignore_case
        self.ignore_punctuation = ignore_punctuation
        self.regexes_to_ignore = regexes_to_ignore
        self._ignored = [compile_pattern(p, "multi_choice_regex") for p in regexes_to_ignore or ()]

    def remove_ignored(self, text: Any) -> str:
        """Returns `text` in the form in which answers and choices are compared.

        Matches of `regexes_to_ignore` are removed; then it is converted to lower case if
        `ignore_case`, and punctuation is removed if `ignore_punctuation`. "" if it is not a string.
        """
        clean: str = text if isinstance(text, str) else ""
        for pattern in self._ignored:
            clean = pattern.sub("", clean)
        if self.ignore_case:
            clean = clean.lower()
        return clean.translate(_punctuation_table()) if self.ignore_punctuation else clean

    def apply(self, resps: Any, docs: Any) -> list[list[Any]]:
        """Returns a list per request, with the choice that each answer names, or the fallback.

        Raises `DataError` if a document has no `choices`.
        """
        found: list[list[Any]] = []
        for answers, doc in zip(resps, docs, strict=True):
            letters, texts, after_colon = self._choice_patterns(doc)
            found.append([self._extract_choice(a, letters, texts, after_colon) for a in answers])
        return found

    def _choice_patterns(self, doc: Any) -> tuple[dict[str, str], re.Pattern[str], re.Pattern[str]]:
        """Returns what is needed to find the choices of `doc` in an answer.

        These are a mapping from each choice's text, without what is ignored, to its letter
        (`"(A)"`), a pattern that matches any of these texts, and a pattern that matches a bare
        letter after a colon. Raises `DataError` if the document has no `choices`.
        """
        if "choices" not in doc:
            raise DataError(
                "filter multi_choice_regex: a document has no `choices` to search for. Add a "
                "list `choices` to the documents with process_docs, or use the filter `regex`."
            )
        letters: dict[str, str] = {}
        names = [chr(ord("A") + number) for number, _ in enumerate(doc["choices"])]
        for name, choice in zip(names, doc["choices"], strict=True):
            letters[self.remove_ignored(str(choice).strip())] = f"({name})"
        # Longest first, because a choice may be the beginning of another one.
        texts = sorted(map(re.escape, letters), key=len, reverse=True)
        after_colon = re.compile(rf":[\s]*({'|'.join(map(re.escape, names))})")
        return letters, re.compile("|".join(texts)), after_colon

    def _extract_choice(
        self,
        answer: Any,
        letters: dict[str, str],
        texts: re.Pattern[str],
        after_colon: re.Pattern[str],
    ) -> Any:
        """Returns the letter of the choice that `answer` names, such as `(A)`, or the fallback.

        A match of `regex_pattern` takes precedence and is returned as it is. The other parameters
        are what `_choice_patterns` returns.
        """
        match = self.find(self.regex, answer)
        if match:
            return match
        match = self.find(texts, self.remove_ignored(answer))
        if match:
            return letters.get(match, match)
        match = self.find(after_colon, answer)
        return f"({match})" if match else self.fallback


@cache
def _punctuation_table() -> dict[int, None]:
    """Returns a table for `str.translate` that deletes all Unicode punctuation.

    Building it takes about a third of a second, so it is built once and cached.
    """
    every = range(sys.maxunicode)
    return {code: None for code in every if unicodedata.category(chr(code)).startswith("P")}
