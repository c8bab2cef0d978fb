"""Runs of consecutive n-grams, as (number of the first one, how many)."""

from __future__ import annotations

from collections.abc import Iterable

Runs = tuple[tuple[int, int], ...]


def union(runs: Iterable[tuple[int, int]]) -> Runs:
    """Returns the runs sorted, with runs that overlap or touch combined."""
    merged: list[tuple[int, int]] = []
    for first, count in sorted(runs):
        if merged and first <= merged[-1][0] + merged[-1][1]:
            start, before = merged[-1]
            merged[-1] = (start, max(before, first + count - start))
        else:
            merged.append((first, count))
    return tuple(merged)


def clip(runs: Runs, count: int) -> Runs:
    """Returns the parts of the runs among the first `count` n-grams."""
    return tuple((first, min(length, count - first)) for first, length in runs if first < count)


def total(runs: Runs) -> int:
    """Returns the number of n-grams in the runs."""
    return sum(count for _, count in runs)


def longest_words(runs: Runs, ngram: int) -> int:
    """Returns the number of words of the longest run of n-grams of `ngram` words; 0 for none.

    k consecutive n-grams consist of k + n - 1 words.
    """
    return max((count + ngram - 1 for _, count in runs), default=0)
