"""Finds training documents that overlap with the benchmark, so that they can be removed.

The unit is an n-gram of 13 words, the usual length for this purpose: shorter ones recur in any text
with set phrases, as this one has, without revealing an answer. A benchmark text of fewer than 13
words overlaps if the whole text occurs. Words are compared in lower case and without punctuation,
so that a different layout cannot hide an overlap.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

NGRAM_WORDS = 13
DATA = Path(__file__).resolve().parents[2] / "lm_eval" / "tasks" / "demo" / "data"

_WORD = re.compile(r"[a-z]+|[0-9]+|[+=-]")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


def words(text: str) -> list[str]:
    """Returns the words of a text that are compared: letters, numbers and operators."""
    return _WORD.findall(text.lower())


class Index:
    """An index of the n-grams of the benchmark texts, against which training texts are checked."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._ids: dict[str, int] = {}
        found: dict[int, list[Hashes]] = {}
        for text in texts:
            ids = self._encode(text, add_words=True)
            length = min(NGRAM_WORDS, len(ids))
            if length:
                found.setdefault(length, []).append(_ngrams(ids, length))
        self._ngrams = {
            length: np.unique(np.concatenate(ngrams)) for length, ngrams in found.items()
        }

    def _encode(self, text: str, *, add_words: bool = False) -> Hashes:
        """Returns each word's number; a new word gets 0, or with `add_words` the next number."""
        known = self._ids
        if add_words:
            for word in words(text):
                known.setdefault(word, len(known) + 1)
        return np.array([known.get(word, 0) for word in words(text)], dtype=np.uint64)

    def shared(self, text: str) -> bool:
        """Returns whether a text contains an n-gram of the benchmark."""
        ids = self._encode(text)
        return any(
            len(ids) >= length and bool(np.isin(_ngrams(ids, length), ngrams).any())
            for length, ngrams in self._ngrams.items()
        )

    def shared_in(self, texts: list[str]) -> NDArray[np.bool_]:
        """Returns, for each text, whether it contains an n-gram of the benchmark.

        All texts are checked at once as one array of words, which is faster.
        """
        encoded = [self._encode(text) for text in texts]
        lengths = np.array([len(ids) for ids in encoded])
        owner = np.repeat(np.arange(len(texts)), lengths)
        ids = np.concatenate(encoded) if encoded else np.zeros(0, np.uint64)
        overlaps = np.zeros(len(texts), dtype=bool)
        for length, ngrams in self._ngrams.items():
            if len(ids) < length:
                continue
            within = owner[: len(ids) - length + 1] == owner[length - 1 :]
            hit = np.isin(_ngrams(ids, length), ngrams) & within
            overlaps[owner[: len(hit)][hit]] = True
        return overlaps


def _ngrams(ids: Hashes, length: int) -> Hashes:
    """Returns a 64-bit hash of each n-gram of `length` words."""
    total = np.zeros(len(ids) - length + 1, dtype=np.uint64)
    for offset in range(length):
        total = (total ^ ids[offset : offset + len(total)]) * _MULTIPLIER
        total ^= total >> np.uint64(29)
    return total


def benchmark_texts(folder: Path = DATA) -> Iterator[str]:
    """Yields every text of the benchmark as a model sees it, including few-shot examples."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from document_texts(json.loads(line))


def document_texts(doc: dict[str, Any]) -> list[str]:
    """Returns the texts of one benchmark document that the training text must not contain."""
    if "scene" in doc:
        answer = doc["choices"][doc["answer"]]
        return [f"{doc['scene']} Question: {doc['question']} Answer: {answer}"]
    if "good" in doc:
        return [doc["good"], doc["bad"]]
    if "word" in doc:
        return [f"{doc['context']} {doc['word']}"]
    if "working" in doc:
        return [f"Q: {doc['question']} A: {doc['working']}"]
    return [doc["text"]]


def clean(texts: list[str], index: Index) -> list[str]:
    """Returns `texts` without those that share an n-gram with the benchmark."""
    overlaps = index.shared_in(texts)
    return [text for text, overlap in zip(texts, overlaps, strict=True) if not overlap]
