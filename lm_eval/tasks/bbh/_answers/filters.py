"""Filters that extract a BBH answer from free text: an option letter, a number, a sorted list …"""

from __future__ import annotations

import re
import string
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any

from lm_eval.api.filter import Filter
from lm_eval.filters.extraction import RegexFilter

Answers = list[list[Any]]


def _pick(pattern: re.Pattern[str], text: str, number: int) -> str:
    """Returns match `number` of `pattern` in `text` (-1 is the last), or "" without a match.

    If the pattern has several groups, the first non-empty group is returned.
    """
    matches = pattern.findall(text)
    if not matches:
        return ""
    found = matches[number]
    if isinstance(found, tuple):
        found = next((part for part in found if part), "")
    return str(found).strip()


class _AnswerFilter(RegexFilter):
    """Base of the filters below: a regex filter that can ignore case and punctuation.

    Subclasses implement `answer_in`. Responses in which it finds nothing become `fallback`.
    """

    def __init__(
        self,
        regex_pattern: str = r"#### (\-?[0-9\.\,]+)",
        group_select: int = 0,
        fallback: str = "[invalid]",
        ignore_case: bool = False,
        ignore_punctuation: bool = False,
    ) -> None:
        super().__init__(regex_pattern, group_select, fallback)
        self.ignore_case = ignore_case
        self.ignore_punctuation = ignore_punctuation

    def normalized(self, text: str) -> str:
        """Returns `text` without the case and punctuation that this filter ignores."""
        if self.ignore_case:
            text = text.lower()
        if self.ignore_punctuation:
            text = "".join(c for c in text if not unicodedata.category(c).startswith("P"))
        return text

    def pick(self, pattern: re.Pattern[str], text: str) -> str:
        return _pick(pattern, text, self.group_select)

    def apply(self, resps: Any, docs: Any) -> Answers:
        return [
            [self.answer_in(answer, doc) or self.fallback for answer in answers]
            for answers, doc in zip(resps, docs, strict=True)
        ]

    def answer_in(self, answer: str, doc: Mapping[str, Any]) -> str:
        """Returns the answer found in one response of the model, or "" if there is none."""
        raise NotImplementedError


class Letter(_AnswerFilter):
    """Extracts the chosen option of a lettered question, as `(B)`.

    Looks for the regular expression, then for the text of an option (longest first), then for a
    letter after a colon (`: B`).
    """

    _OPTION = re.compile(r"\([A-Z]\)([^\n^(]*)")

    def answer_in(self, answer: str, doc: Mapping[str, Any]) -> str:
        options = [self.normalized(text.strip()) for text in self._OPTION.findall(doc["input"])]
        lettered = zip(options, string.ascii_uppercase, strict=False)
        labels = {text: f"({label})" for text, label in lettered}
        longest_first = sorted(map(re.escape, options), key=len, reverse=True)
        found = self.pick(self.regex, answer)
        if not found:
            words = self.pick(re.compile("|".join(longest_first)), self.normalized(answer))
            found = labels.get(words, words)
        if not found:
            letters = "|".join(string.ascii_uppercase[: len(options)])
            found = self.pick(re.compile(rf":[\s]*({letters})"), answer)
            found = f"({found})" if found else ""
        return found


class Mapped(_AnswerFilter):
    """Extracts a phrase and maps it to a canonical value, such as "not plausible" to "no".

    `regex_pattern_to_value` maps regular expressions to values. The value is that of the first
    expression that matches the extracted phrase.
    """

    def __init__(self, regex_pattern_to_value: Mapping[str, str], **settings: Any) -> None:
        super().__init__("|".join(regex_pattern_to_value), **settings)
        self._values = {re.compile(p): value for p, value in regex_pattern_to_value.items()}

    def answer_in(self, answer: str, doc: Mapping[str, Any]) -> str:
        phrase = self.pick(self.regex, self.normalized(answer))
        if not phrase:
            return ""
        values = (v for pattern, v in self._values.items() if self.pick(pattern, phrase))
        return next(values, "")


_UNITS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
]
_VALUES = {word: number for number, word in enumerate(_UNITS)} | {
    word: 10 * number
    for number, word in enumerate(
        ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"], start=2
    )
}
_SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}


def _number_words(stem_ending: str, eight_ending: str) -> str:
    """Returns a pattern for one number word; the arguments are the allowed endings of stems."""
    return (
        rf"zero|one|two|three|four|five|(?:twen|thir|for|fif|six|seven|nine)(?:{stem_ending})"
        rf"|eight(?:{eight_ending})|ten|eleven|twelve|fourteen|hundred|thousand|(?:m|b|tr)illion"
    )


#: The published harness's pattern. It finds six, seven and nine only inside longer numbers.
_IN_WORDS = re.compile(
    rf"((?:(?:{_number_words('teen|ty', '|een|y')})"
    rf"(?:{_number_words('|teen|ty', 'een|y')}|[^\S\r\n]|,|and|&)+)?"
    rf"(?:{_number_words('teen|ty', 'een|y')}))"
)


def number_of(words: Iterable[str]) -> int:
    """Returns the value of an English number given as words: "two hundred and five" is 205."""
    total = current = 0
    for word in words:
        if word in _SCALES:
            total, current = total + max(current, 1) * _SCALES[word], 0
        elif word == "hundred":
            current = max(current, 1) * 100
        else:
            current += _VALUES.get(word, 0)
    return total + current


class Number(_AnswerFilter):
    """Extracts a number: the match of the regular expression, else a number in English words."""

    def answer_in(self, answer: str, doc: Mapping[str, Any]) -> str:
        found = self.pick(self.regex, answer)
        if found:
            return found
        words = self.pick(_IN_WORDS, answer.lower())
        return str(number_of(re.findall(r"[a-z]+", words))) if words else ""


class SortedWords(Filter):
    """Extracts a sorted word list from a response to the word-sorting task.

    The result is the words of the question's list in the order of their last occurrences in the
    response, joined by spaces. Words that do not occur are left out.
    """

    def apply(self, resps: Any, docs: Any) -> Answers:
        return [
            [self._ordered(answer, doc["input"]) for answer in answers]
            for answers, doc in zip(resps, docs, strict=True)
        ]

    @staticmethod
    def _ordered(answer: str, question: str) -> str:
        words = question.split("List:")[1].split()
        found = re.findall("|".join(rf"\b{word}\b" for word in words), answer)
        return " ".join(reversed(dict.fromkeys(reversed(found))))
