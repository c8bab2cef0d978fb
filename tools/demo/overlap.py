"""Find what the training text shares with the benchmark, so that it can be left out and checked.

The unit is a run of 13 words, the length long used for this purpose: shorter runs recur in any
text that has sayings and set phrases, as this one has, without giving an answer away. A benchmark
text of fewer than 13 words counts as shared when the whole of it occurs. Words are compared in
lower case and without punctuation, so that a change of layout hides nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

RUN = 13
DATA = Path(__file__).resolve().parents[2] / "lm_eval" / "tasks" / "demo" / "data"

_WORD = re.compile(r"[a-z]+|[0-9]+|[+=-]")
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)

Hashes = NDArray[np.uint64]


def words(text: str) -> list[str]:
    """Split a text into the words that are compared."""
    return _WORD.findall(text.lower())


class Index:
    """The word runs of a set of protected texts."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._ids: dict[str, int] = {}
        found: dict[int, list[Hashes]] = {}
        for text in texts:
            ids = self._encode(text, grow=True)
            length = min(RUN, len(ids))
            if length:
                found.setdefault(length, []).append(_runs(ids, length))
        self._runs = {length: np.unique(np.concatenate(runs)) for length, runs in found.items()}

    def _encode(self, text: str, *, grow: bool = False) -> Hashes:
        known = self._ids
        if grow:
            for word in words(text):
                known.setdefault(word, len(known) + 1)
        return np.array([known.get(word, 0) for word in words(text)], dtype=np.uint64)

    def shared(self, text: str) -> bool:
        """Whether a text contains a protected run."""
        ids = self._encode(text)
        return any(
            len(ids) >= length and bool(np.isin(_runs(ids, length), runs).any())
            for length, runs in self._runs.items()
        )

    def shared_in(self, texts: list[str]) -> NDArray[np.bool_]:
        """Which of many texts contain a protected run, checked as one long array of words."""
        encoded = [self._encode(text) for text in texts]
        lengths = np.array([len(ids) for ids in encoded])
        owner = np.repeat(np.arange(len(texts)), lengths)
        ids = np.concatenate(encoded) if encoded else np.zeros(0, np.uint64)
        guilty = np.zeros(len(texts), dtype=bool)
        for length, runs in self._runs.items():
            if len(ids) < length:
                continue
            within = owner[: len(ids) - length + 1] == owner[length - 1 :]
            hit = np.isin(_runs(ids, length), runs) & within
            guilty[owner[: len(hit)][hit]] = True
        return guilty


def _runs(ids: Hashes, length: int) -> Hashes:
    """A 64-bit hash of every run of `length` words."""
    total = np.zeros(len(ids) - length + 1, dtype=np.uint64)
    for offset in range(length):
        total = (total ^ ids[offset : offset + len(total)]) * _MULTIPLIER
        total ^= total >> np.uint64(29)
    return total


def benchmark_texts(folder: Path = DATA) -> Iterator[str]:
    """Every text of the benchmark as a model sees it, exemplars included."""
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield from document_texts(json.loads(line))


def document_texts(doc: dict[str, Any]) -> list[str]:
    """The texts of one benchmark document that the training text must not contain."""
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
    """Leave out the texts that share a run of words with the benchmark."""
    guilty = index.shared_in(texts)
    return [text for text, out in zip(texts, guilty, strict=True) if not out]
