"""SQuAD's comparison of answers: exact match and F1 of words, without articles or punctuation.

The names are those of `transformers.data.metrics.squad_metrics`.
"""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(s: str) -> str:
    """Returns a text in lower case without articles, punctuation and extra spaces."""
    return " ".join(_ARTICLES.sub(" ", s.lower().translate(_NO_PUNCTUATION)).split())


def compute_exact(a_gold: str, a_pred: str) -> int:
    """Returns 1 if both texts are equal after normalization, else 0."""
    return int(normalize_answer(a_gold) == normalize_answer(a_pred))


def compute_f1(a_gold: str, a_pred: str) -> float:
    """Returns the F1 of the words. If a side has no words: 1.0 if neither has any, else 0.0."""
    expected, given = normalize_answer(a_gold).split(), normalize_answer(a_pred).split()
    if not expected or not given:
        return float(expected == given)
    shared = (Counter(expected) & Counter(given)).total()
    return 2 * shared / (len(expected) + len(given))
