"""Language detection and splitting into sentences and words for IFEval, without any download.

`langdetect` ships its language profiles. NLTK's sentence splitter gets the list of abbreviations
below instead of a trained model, which would have to be downloaded.
"""

from __future__ import annotations

import functools
from typing import Any

from lm_eval.errors import ConfigError

_ABBREVIATIONS = frozenset(
    [
        "adm",
        "apr",
        "assoc",
        "aug",
        "ave",
        "bancorp",
        "bhd",
        "bldg",
        "brig",
        "bros",
        "capt",
        "cmdr",
        "co",
        "col",
        "corp",
        "ct",
        "dec",
        "dept",
        "det",
        "dist",
        "dr",
        "e.g",
        "esp",
        "est",
        "etc",
        "ext",
        "feb",
        "ft",
        "gen",
        "gov",
        "hon",
        "i.e",
        "inc",
        "jan",
        "jr",
        "jul",
        "lt",
        "ltd",
        "maj",
        "mar",
        "messrs",
        "mr",
        "mrs",
        "ms",
        "mt",
        "n.y",
        "nov",
        "oct",
        "p.m",
        "a.m",
        "ph.d",
        "pp",
        "prof",
        "rep",
        "reps",
        "rev",
        "rte",
        "sen",
        "sens",
        "sep",
        "sept",
        "sgt",
        "sr",
        "st",
        "u.k",
        "u.n",
        "u.s",
        "u.s.a",
        "v",
        "vs",
        "yr",
    ]
)


def _missing_package(package: str) -> ConfigError:
    """Returns the error that names the missing package and how to install it."""
    return ConfigError(
        f"checking instructions of IFEval needs the package {package}, which is not installed. "
        "Install it with: pip install -e '.[ifeval]' in the checkout of lm_eval."
    )


@functools.cache
def _langdetect() -> Any:
    """Returns langdetect with a fixed seed. Raises ConfigError if it is not installed."""
    try:
        import langdetect
    except ImportError as error:
        raise _missing_package("langdetect") from error
    langdetect.DetectorFactory.seed = 0  # langdetect samples; make it deterministic
    return langdetect


@functools.cache
def _nltk() -> tuple[Any, Any]:
    """Returns NLTK's sentence splitter and word tokenizer. Raises ConfigError without NLTK."""
    try:
        from nltk.tokenize import NLTKWordTokenizer
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    except ImportError as error:
        raise _missing_package("nltk") from error
    known = PunktParameters()
    known.abbrev_types = set(_ABBREVIATIONS)
    return PunktSentenceTokenizer(known), NLTKWordTokenizer()


def is_in(text: str, code: str) -> bool:
    """Returns whether `text` is in the language `code` ("en"); True if no language can be detected.

    langdetect cannot detect the language of a text without letters.
    """
    langdetect = _langdetect()
    try:
        return bool(langdetect.detect(text) == code)
    except langdetect.LangDetectException:
        return True


def count_sentences(text: str) -> int:
    splitter, _ = _nltk()
    return len(splitter.tokenize(text))


def words(text: str) -> list[str]:
    """Returns the words and punctuation marks of `text`, split as in the Penn Treebank."""
    splitter, tokenizer = _nltk()
    return [word for part in splitter.tokenize(text) for word in tokenizer.tokenize(part)]


def require() -> None:
    """Raises ConfigError if a package is missing, before the model generates anything."""
    _langdetect()
    _nltk()
