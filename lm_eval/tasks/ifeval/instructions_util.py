"""The functions of the published module of this name, for code that imports them."""

from __future__ import annotations

import re

from lm_eval.helpers.ifeval_language import count_sentences

__all__ = ["LANGUAGE_CODES", "count_sentences", "count_words"]

#: The languages of the instruction `language:response_language`, by their ISO 639-1 code.
LANGUAGE_CODES = {
    "en": "English",
    "es": "Spanish",
    "pt": "Portuguese",
    "ar": "Arabic",
    "hi": "Hindi",
    "fr": "French",
    "ru": "Russian",
    "de": "German",
    "ja": "Japanese",
    "it": "Italian",
    "bn": "Bengali",
    "uk": "Ukrainian",
    "th": "Thai",
    "ur": "Urdu",
    "ta": "Tamil",
    "te": "Telugu",
    "bg": "Bulgarian",
    "ko": "Korean",
    "pl": "Polish",
    "he": "Hebrew",
    "fa": "Persian",
    "vi": "Vietnamese",
    "ne": "Nepali",
    "sw": "Swahili",
    "kn": "Kannada",
    "mr": "Marathi",
    "gu": "Gujarati",
    "pa": "Punjabi",
    "ml": "Malayalam",
    "fi": "Finnish",
}


def count_words(text: str) -> int:
    """Returns the number of words, which are runs of letters, digits and underscores."""
    return len(re.findall(r"\w+", text))
