"""DROP's comparison of answers: exact match and F1 of the words of one or several text spans."""

from __future__ import annotations

import contextlib
import re
import string
from collections.abc import Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def drop_metrics(predicted: str | Sequence[str], gold: str | Sequence[str]) -> tuple[float, float]:
    """Returns exact match (1.0 or 0.0) and F1 (rounded to two digits) of two answers.

    An answer is one text span or several. Each gold span is compared with at most one predicted
    span, so that the sum of F1 is largest; the sum is divided by the larger number of spans. A gold
    span with numbers scores only if the predicted one has one of them.
    """
    given = [normalize_span(span) for span in _spans(predicted)]
    expected = [normalize_span(span) for span in _spans(gold)]
    exact = float(len(given) == len(expected) and set(given) == set(expected))
    scores = np.zeros((len(expected), len(given)))
    for row, column in np.ndindex(scores.shape):
        scores[row, column] = _overlap(given[column], expected[row])
    total = scores.max() if 1 in scores.shape else _best_total(scores)
    # Rounded by numpy, as in the published harness: it can differ from Python in the last digit.
    return exact, float(np.round(total / max(len(given), len(expected)), 2))


def _spans(answer: str | Sequence[str]) -> Sequence[str]:
    return [answer] if isinstance(answer, str) else answer


def _best_total(scores: np.ndarray) -> float:
    """Returns the largest sum of scores, none negative, with at most one of each row and column.

    This is the Hungarian algorithm: rows are matched one after the other along the cheapest path
    that may move earlier rows to other columns. `row_price` and `column_price` keep the reduced
    costs of all pairs at 0 or above.
    """
    costs = -(scores if scores.shape[0] <= scores.shape[1] else scores.T)
    rows, columns = costs.shape
    row_price, column_price = np.zeros(rows), np.zeros(columns)
    row_of = np.full(columns, -1)  # the row that each column is matched with
    for start in range(rows):
        distance = np.full(columns, np.inf)
        came_from = np.full(columns, -1)
        done = np.zeros(columns, dtype=bool)
        row, column, length = start, -1, 0.0
        while row >= 0:
            through = length + costs[row] - row_price[row] - column_price
            shorter = ~done & (through < distance)
            distance[shorter], came_from[shorter] = through[shorter], column
            column = int(np.argmin(np.where(done, np.inf, distance)))
            length = float(distance[column])
            done[column] = True
            row = int(row_of[column])
        row_price[start] += length
        for other in np.flatnonzero(done):
            column_price[other] -= length - distance[other]
            if row_of[other] >= 0:
                row_price[row_of[other]] += length - distance[other]
        while column >= 0:
            before = int(came_from[column])
            row_of[column] = start if before < 0 else row_of[before]
            column = before
    matched = np.flatnonzero(row_of >= 0)
    return float(abs(costs[row_of[matched], matched].sum()))


def normalize_span(text: str) -> str:
    """Returns `text` in lower case, without articles and punctuation, numbers as floats."""
    words = (_clean(word.lower()) for word in re.split(" |-", text))
    return " ".join(word for word in words if word)


def _clean(word: str) -> str:
    if _number(word) is None:
        word = word.translate(_PUNCTUATION)
    word = _number(word) or word
    return " ".join(_ARTICLES.sub(" ", word).split())


def _number(word: str) -> str | None:
    """Returns `word` as a float's text ("3" becomes "3.0"), or None if it is no number."""
    with contextlib.suppress(ValueError):
        return str(float(word))
    return None


def _overlap(given: str, expected: str) -> float:
    """Returns the F1 of two spans' words; 0.0 if numbers are expected and none of them is given."""
    words, gold = set(given.split()), set(expected.split())
    numbers = {word for word in gold if _number(word) is not None}
    if numbers and not numbers & words:
        return 0.0
    shared = len(words & gold)
    precision = shared / len(words) if words else 1.0
    recall = shared / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision or recall else 0.0
