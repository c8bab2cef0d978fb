"""IFEval's instructions as classes, for code that imports them from the published harness.

A class describes an instruction, and checks whether a response follows it. The checks are the
functions of `lm_eval.helpers.ifeval_checks`, and the descriptions are our own words. The published
classes that its registry does not contain do not exist here.
"""

from __future__ import annotations

import random
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from lm_eval.helpers import ifeval_checks as checks
from lm_eval.helpers.ifeval_checks import RELATIONS, Check
from lm_eval.tasks.ifeval.instructions_util import LANGUAGE_CODES


class Instruction:
    """An instruction of IFEval: the interface of the classes below.

    Call `build_description` with the settings of the instruction first, then `check_following`.
    """

    def __init__(self, instruction_id: str) -> None:
        self.id = instruction_id

    def build_description(self, **kwargs: Any) -> str:
        """Sets the settings of the instruction; returns the instruction in words."""
        raise NotImplementedError

    def get_instruction_args(self) -> dict[str, Any] | None:
        """Returns the settings, by name; None if the instruction has none."""
        raise NotImplementedError

    def get_instruction_args_keys(self) -> list[str]:
        """Returns the names of the settings."""
        raise NotImplementedError

    def check_following(self, value: str) -> bool:
        """Returns whether the response `value` follows the instruction."""
        raise NotImplementedError


@dataclass(frozen=True)
class Setting:
    """A setting of an instruction.

    `draw` returns a random value, given the settings before this one, if none was given; without
    it, a value must be given. `prepare` changes a given value.
    """

    name: str
    draw: Callable[[Mapping[str, Any]], Any] | None = None
    prepare: Callable[[Any], Any] | None = None

    def value(self, given: Any, before: Mapping[str, Any]) -> Any:
        """Returns the value to use; raises `ValueError` if one must be given.

        None, and negative numbers, count as not given.
        """
        if given is None or (isinstance(given, int) and given < 0):
            if self.draw is None:
                raise ValueError(f"{self.name} must be given; no random value is drawn for it.")
            return self.draw(before)
        return given if self.prepare is None else self.prepare(given)


def _number(name: str, lowest: int, highest: int) -> Setting:
    return Setting(name, lambda before: random.randint(lowest, highest))


def _relation(name: str) -> Setting:
    """Returns the setting for how a count relates to its limit."""

    def checked(given: Any) -> Any:
        if given not in RELATIONS:
            raise ValueError(f"{name} must be one of {RELATIONS}, not {given!r}.")
        return given

    return Setting(name, lambda before: random.choice(RELATIONS), checked)


class _Checker(Instruction):
    """An instruction that one of the functions in `ifeval_checks` checks.

    `text` is its description, with the names of the settings in braces.
    """

    check: ClassVar[Check]
    text: ClassVar[str]
    settings: ClassVar[tuple[Setting, ...]] = ()

    def __init__(self, instruction_id: str) -> None:
        super().__init__(instruction_id)
        self._values: dict[str, Any] = {}

    def build_description(self, **kwargs: Any) -> str:
        unknown = kwargs.keys() - {setting.name for setting in self.settings}
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}.")
        self._values = {}
        for setting in self.settings:
            given = kwargs.get(setting.name)
            self._values[setting.name] = setting.value(given, self._values)
        return self.text.format(**self._values)

    def get_instruction_args(self) -> dict[str, Any] | None:
        return dict(self._values) if self.settings else None

    def get_instruction_args_keys(self) -> list[str]:
        return [setting.name for setting in self.settings]

    def check_following(self, value: str) -> bool:
        return bool(type(self).check(value, **self._values))


# -- keywords and letters ---------------------------------------------------------------------


class KeywordChecker(_Checker):
    check = staticmethod(checks.has_keywords)
    text = "Use the keywords {keywords}."
    settings = (Setting("keywords", prepare=sorted),)


class KeywordFrequencyChecker(_Checker):
    check = staticmethod(checks.keyword_frequency)
    text = "Use the word {keyword} {relation} {frequency} times."
    settings = (
        Setting("keyword", prepare=str.strip),
        _number("frequency", 1, 3),
        _relation("relation"),
    )


class ForbiddenWords(_Checker):
    check = staticmethod(checks.lacks_words)
    text = "Avoid the words {forbidden_words}."
    settings = (Setting("forbidden_words", prepare=lambda words: sorted(set(words))),)


class LetterFrequencyChecker(_Checker):
    check = staticmethod(checks.letter_frequency)
    text = "Use the letter {letter} {let_relation} {let_frequency} times."
    settings = (
        Setting(
            "letter",
            lambda before: random.choice(string.ascii_letters).lower(),
            lambda letter: letter.strip().lower(),
        ),
        _number("let_frequency", 1, 10),
        _relation("let_relation"),
    )


# -- language and case ------------------------------------------------------------------------


class ResponseLanguageChecker(_Checker):
    check = staticmethod(checks.response_language)
    text = "Write everything in the language {language}."
    settings = (Setting("language", lambda before: random.choice(list(LANGUAGE_CODES))),)


class CapitalWordFrequencyChecker(_Checker):
    check = staticmethod(checks.capital_words)
    text = "Write {capital_relation} {capital_frequency} words in capitals."
    settings = (_number("capital_frequency", 1, 20), _relation("capital_relation"))


class CapitalLettersEnglishChecker(_Checker):
    check = staticmethod(checks.english_capital)
    text = "Write everything in English and in capitals."


class LowercaseLettersEnglishChecker(_Checker):
    check = staticmethod(checks.english_lowercase)
    text = "Write everything in English and without capitals."


# -- length -----------------------------------------------------------------------------------


class NumberOfSentences(_Checker):
    check = staticmethod(checks.number_of_sentences)
    text = "Write {relation} {num_sentences} sentences."
    settings = (_number("num_sentences", 1, 20), _relation("relation"))


class NumberOfWords(_Checker):
    check = staticmethod(checks.number_of_words)
    text = "Write {relation} {num_words} words."
    settings = (_number("num_words", 100, 500), _relation("relation"))


class ParagraphChecker(_Checker):
    check = staticmethod(checks.number_of_paragraphs)
    text = "Write {num_paragraphs} paragraphs with a line of three asterisks between them."
    settings = (_number("num_paragraphs", 1, 5),)


class ParagraphFirstWordCheck(_Checker):
    check = staticmethod(checks.first_word_of_paragraph)
    text = (
        "Write {num_paragraphs} paragraphs with an empty line between them. Number "
        "{nth_paragraph} begins with the word {first_word}."
    )
    settings = (
        _number("num_paragraphs", 1, 5),
        Setting("nth_paragraph", lambda before: random.randint(1, before["num_paragraphs"] + 1)),
        Setting("first_word", prepare=str.lower),
    )


# -- content and format -----------------------------------------------------------------------


class PlaceholderChecker(_Checker):
    check = staticmethod(checks.placeholders)
    text = "Use {num_placeholders} or more placeholders in square brackets."
    settings = (_number("num_placeholders", 1, 4),)


class PostscriptChecker(_Checker):
    check = staticmethod(checks.postscript)
    text = "Close with a postscript that begins with {postscript_marker}"
    settings = (
        Setting("postscript_marker", lambda _: random.choice(("P.S.", "P.P.S")), str.strip),
    )


class BulletListChecker(_Checker):
    check = staticmethod(checks.bullets)
    text = "Write exactly {num_bullets} points of a Markdown list."
    settings = (_number("num_bullets", 1, 5),)


class ConstrainedResponseChecker(_Checker):
    check = staticmethod(checks.constrained_response)
    text = "Say that your answer is yes, no or maybe, in the words `My answer is …`."


class HighlightSectionChecker(_Checker):
    check = staticmethod(checks.highlights)
    text = "Put {num_highlights} or more parts between asterisks."
    settings = (_number("num_highlights", 1, 4),)


class SectionChecker(_Checker):
    check = staticmethod(checks.sections)
    text = "Write {num_sections} sections. Number them: {section_spliter} 1, and so on."
    settings = (
        Setting("section_spliter", lambda _: random.choice(("Section", "SECTION")), str.strip),
        _number("num_sections", 1, 5),
    )


class JsonFormat(_Checker):
    check = staticmethod(checks.is_json)
    text = "Write nothing but JSON; it may be in a Markdown code block."


class TitleChecker(_Checker):
    check = staticmethod(checks.title)
    text = "Use a title in double angle brackets."


# -- the whole response -----------------------------------------------------------------------


class TwoResponsesChecker(_Checker):
    check = staticmethod(checks.two_responses)
    text = "Write two different responses with six asterisks between them."


class RepeatPromptThenAnswer(_Checker):
    check = staticmethod(checks.repeats_prompt)
    text = "Repeat the request word by word before you answer."
    settings = (Setting("prompt_to_repeat"),)


class EndChecker(_Checker):
    check = staticmethod(checks.ends_with)
    text = "Close with these words: {end_phrase}"
    settings = (Setting("end_phrase", prepare=str.strip),)


class QuotationChecker(_Checker):
    check = staticmethod(checks.in_quotation_marks)
    text = "Put the whole response in double quotation marks."


class CommaChecker(_Checker):
    check = staticmethod(checks.no_comma)
    text = "Use no commas."
