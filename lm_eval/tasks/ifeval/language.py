"""What IFEval needs to know of language: which one, its sentences, its words. Downloads nothing.

`langdetect` carries its profiles in the package. NLTK's sentence splitter is given common
abbreviations by hand here, in place of the trained model that would have to be downloaded.
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


def _missing(package: str) -> ConfigError:
    return ConfigError(
        f"ifeval needs the package {package}, which is not installed: "
        "pip install 'lm_eval[ifeval]'."
    )


@functools.cache
def _langdetect() -> Any:
    try:
        import langdetect
    except ImportError as error:
        raise _missing("langdetect") from error
    langdetect.DetectorFactory.seed = 0  # it draws lots; the same text gets the same answer
    return langdetect


@functools.cache
def _nltk() -> tuple[Any, Any]:
    try:
        from nltk.tokenize import NLTKWordTokenizer
        from nltk.tokenize.punkt import PunktParameters, PunktSentenceTokenizer
    except ImportError as error:
        raise _missing("nltk") from error
    known = PunktParameters()
    known.abbrev_types = set(_ABBREVIATIONS)
    return PunktSentenceTokenizer(known), NLTKWordTokenizer()


def is_in(text: str, code: str) -> bool:
    """Whether a text is in a language; one without any letters is in all of them."""
    langdetect = _langdetect()
    try:
        return bool(langdetect.detect(text) == code)
    except langdetect.LangDetectException:
        return True


def count_sentences(text: str) -> int:
    splitter, _ = _nltk()
    return len(splitter.tokenize(text))


def words(text: str) -> list[str]:
    """Words and marks, the way of the Penn Treebank."""
    splitter, tokenizer = _nltk()
    return [word for part in splitter.tokenize(text) for word in tokenizer.tokenize(part)]


def require() -> None:
    """Fail now, rather than after the model has answered, where a package is missing."""
    _langdetect()
    _nltk()
