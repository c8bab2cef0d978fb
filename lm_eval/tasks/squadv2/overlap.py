"""SQuAD's comparison of answers: exact match and F1 of words, without articles or punctuation.

Other benchmarks that score in this way import it too.
"""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """Returns `text` in lower case without articles, punctuation and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact(gold: str, answer: str) -> int:
    """Returns 1 if both texts are equal after normalization, else 0."""
    return int(normalize(gold) == normalize(answer))


def f1(gold: str, answer: str) -> float:
    """Returns the F1 of the words. If a side has no words: 1.0 if neither has any, else 0.0."""
    expected, given = normalize(gold).split(), normalize(answer).split()
    if not expected or not given:
        return float(expected == given)
    shared = (Counter(expected) & Counter(given)).total()
    return 2 * shared / (len(expected) + len(given))
