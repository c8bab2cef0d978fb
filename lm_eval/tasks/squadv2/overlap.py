"""How SQuAD compares an answer with the right one: words alone, without articles or punctuation.

Other families that score by exact match and shared words use this too.
"""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split())


def exact(gold: str, answer: str) -> int:
    return int(normalise(gold) == normalise(answer))


def f1(gold: str, answer: str) -> float:
    """F1 of the words; where either side has none, 1 if both have none."""
    expected, given = normalise(gold).split(), normalise(answer).split()
    if not expected or not given:
        return float(expected == given)
    shared = (Counter(expected) & Counter(given)).total()
    return 2 * shared / (len(expected) + len(given))
