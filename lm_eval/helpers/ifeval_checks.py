"""IFEval: one function per instruction, which checks whether a response follows it.

Each takes the response and the instruction's settings, named as in the dataset, and returns a bool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from lm_eval.helpers import ifeval_language

Check = Callable[..., bool]


#: How a count may relate to its limit.
RELATIONS = ("less than", "at least")


def _compare(count: int, relation: str, limit: int) -> bool:
    """Returns whether a count has the relation to its limit; raises ValueError for another one."""
    if relation not in RELATIONS:
        raise ValueError(f"the relation must be one of {RELATIONS}, not {relation!r}")
    return count < limit if relation == "less than" else count >= limit


# -- keywords ---------------------------------------------------------------------------------


def has_keywords(text: str, keywords: list[str]) -> bool:
    """Returns whether all keywords (regular expressions) occur, in any case."""
    return all(re.search(word, text, re.IGNORECASE) for word in keywords)


def keyword_frequency(text: str, keyword: str, frequency: int, relation: str) -> bool:
    return _compare(len(re.findall(keyword.strip(), text, re.IGNORECASE)), relation, frequency)


def lacks_words(text: str, forbidden_words: list[str]) -> bool:
    """Returns whether none of the forbidden words occurs as a whole word, in any case."""
    return not any(re.search(rf"\b{word}\b", text, re.IGNORECASE) for word in forbidden_words)


def letter_frequency(text: str, letter: str, let_frequency: int, let_relation: str) -> bool:
    return _compare(text.lower().count(letter.strip().lower()), let_relation, let_frequency)


# -- length -----------------------------------------------------------------------------------


def number_of_sentences(text: str, num_sentences: int, relation: str) -> bool:
    return _compare(ifeval_language.count_sentences(text), relation, num_sentences)


def number_of_words(text: str, num_words: int, relation: str) -> bool:
    return _compare(len(re.findall(r"\w+", text)), relation, num_words)


def number_of_paragraphs(text: str, num_paragraphs: int) -> bool:
    """Returns whether the text has `num_paragraphs` paragraphs, separated by `***`.

    Only the first and the last may be empty; empty ones are not counted.
    """
    paragraphs = [part.strip() for part in re.split(r"\s?\*\*\*\s?", text)]
    if not all(paragraphs[1:-1]):
        return False
    return sum(map(bool, paragraphs)) == num_paragraphs


def first_word_of_paragraph(
    text: str, num_paragraphs: int, nth_paragraph: int, first_word: str
) -> bool:
    """Returns whether paragraph `nth_paragraph` of `num_paragraphs` starts with `first_word`.

    False if the number of paragraphs differs. Paragraphs are separated by an empty line; empty
    paragraphs are not counted.
    """
    paragraphs = text.split("\n\n")
    count = sum(1 for part in paragraphs if part.strip())
    if nth_paragraph > count:
        return False
    words = paragraphs[nth_paragraph - 1].split()
    if not words:
        return False
    opening = re.split(r"[.,?!'\"]", words[0].lstrip("'").lstrip('"'), maxsplit=1)[0]
    return count == num_paragraphs and opening.lower() == first_word.lower()


# -- content and format -----------------------------------------------------------------------


def placeholders(text: str, num_placeholders: int) -> bool:
    """Returns whether there are `num_placeholders` or more placeholders, such as `[name]`."""
    return len(re.findall(r"\[.*?\]", text)) >= num_placeholders


def postscript(text: str, postscript_marker: str) -> bool:
    """Returns whether the text has a postscript that starts with the marker, such as P.S."""
    marker = postscript_marker.strip()
    patterns = {"P.P.S": r"\s*p\.\s?p\.\s?s.*$", "P.S.": r"\s*p\.\s?s\..*$"}
    pattern = patterns.get(marker, rf"\s*{marker.lower()}.*$")
    return bool(re.search(pattern, text.lower(), re.MULTILINE))


def bullets(text: str, num_bullets: int) -> bool:
    """Returns whether there are exactly `num_bullets` lines that start with `*` or `-`."""
    stars = re.findall(r"^\s*\*[^\*].*$", text, re.MULTILINE)
    dashes = re.findall(r"^\s*-.*$", text, re.MULTILINE)
    return len(stars) + len(dashes) == num_bullets


def constrained_response(text: str) -> bool:
    """Returns whether the text contains "My answer is yes.", "… no." or "… maybe."."""
    return any(f"My answer is {word}." in text for word in ("yes", "no", "maybe"))


def highlights(text: str, num_highlights: int) -> bool:
    """Returns whether `num_highlights` or more spans are marked `*text*` or `**text**`."""
    single = [part for part in re.findall(r"\*[^\n\*]*\*", text) if part.strip("*").strip()]
    double = [part for part in re.findall(r"\*\*[^\n\*]*\*\*", text) if part[2:-2].strip()]
    return len(single) + len(double) >= num_highlights


def sections(text: str, section_spliter: str, num_sections: int) -> bool:
    """Returns whether there are at least `num_sections` numbered headings, such as "Section 1"."""
    return len(re.findall(rf"\s?{section_spliter.strip()}\s?\d+\s?", text)) >= num_sections


def is_json(text: str) -> bool:
    """Returns whether the text, without a code fence around it, is valid JSON."""
    text = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        text = text.removeprefix(fence)
    try:
        json.loads(text.removesuffix("```").strip())
    except ValueError:
        return False
    return True


def title(text: str) -> bool:
    """Returns whether the text has a non-empty title in double angle brackets: `<<title>>`."""
    return any(part.lstrip("<").rstrip(">").strip() for part in re.findall(r"<<[^\n]+>>", text))


# -- the whole response -----------------------------------------------------------------------


def two_responses(text: str) -> bool:
    """Returns whether the text is two different responses separated by six asterisks.

    Empty parts are allowed only at the start and at the end.
    """
    parts = [part.strip() for part in text.split("******")]
    responses = [part for part in parts if part]
    return all(parts[1:-1]) and len(responses) == 2 and responses[0] != responses[1]


def repeats_prompt(text: str, prompt_to_repeat: str) -> bool:
    """Returns whether the response starts with the given prompt, in any case."""
    return text.strip().lower().startswith(prompt_to_repeat.strip().lower())


def ends_with(text: str, end_phrase: str) -> bool:
    """Returns whether the response ends with the phrase, in any case, quoted or not."""
    return text.strip().strip('"').lower().endswith(end_phrase.strip().lower())


def in_quotation_marks(text: str) -> bool:
    text = text.strip()
    return len(text) > 1 and text[0] == text[-1] == '"'


def capital_words(text: str, capital_frequency: int, capital_relation: str) -> bool:
    """Returns whether the number of words in all capitals is as required."""
    count = sum(1 for word in ifeval_language.words(text) if word.isupper())
    return _compare(count, capital_relation, capital_frequency)


def english_capital(text: str) -> bool:
    return text.isupper() and ifeval_language.is_in(text, "en")


def english_lowercase(text: str) -> bool:
    return text.islower() and ifeval_language.is_in(text, "en")


def no_comma(text: str) -> bool:
    return "," not in text


def response_language(text: str, language: str) -> bool:
    return ifeval_language.is_in(text, language)


IFEVAL_CHECKS: dict[str, Check] = {
    "keywords:existence": has_keywords,
    "keywords:frequency": keyword_frequency,
    "keywords:forbidden_words": lacks_words,
    "keywords:letter_frequency": letter_frequency,
    "language:response_language": response_language,
    "length_constraints:number_sentences": number_of_sentences,
    "length_constraints:number_paragraphs": number_of_paragraphs,
    "length_constraints:number_words": number_of_words,
    "length_constraints:nth_paragraph_first_word": first_word_of_paragraph,
    "detectable_content:number_placeholders": placeholders,
    "detectable_content:postscript": postscript,
    "detectable_format:number_bullet_lists": bullets,
    "detectable_format:constrained_response": constrained_response,
    "detectable_format:number_highlighted_sections": highlights,
    "detectable_format:multiple_sections": sections,
    "detectable_format:json_format": is_json,
    "detectable_format:title": title,
    "combination:two_responses": two_responses,
    "combination:repeat_prompt": repeats_prompt,
    "startend:end_checker": ends_with,
    "startend:quotation": in_quotation_marks,
    "change_case:capital_word_frequency": capital_words,
    "change_case:english_capital": english_capital,
    "change_case:english_lowercase": english_lowercase,
    "punctuation:no_comma": no_comma,
}


def follows_instruction(text: str, instruction: str, settings: Mapping[str, Any]) -> bool:
    """Returns whether a response follows an instruction of IFEval; an empty response follows none.

    `instruction` is a key of `IFEVAL_CHECKS`. `settings` may have a key for every setting of the
    dataset; empty values belong to other instructions and are not passed on. Raises `KeyError` for
    an unknown instruction, and `TypeError` if a setting is missing or does not belong to it.
    """
    given = {key: value for key, value in settings.items() if value}
    check = IFEVAL_CHECKS[instruction]
    return bool(text.strip()) and check(text, **given)
