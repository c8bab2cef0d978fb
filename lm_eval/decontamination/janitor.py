"""`Janitor` removes n-grams of registered texts from other texts, as in the published harness.

It cleans a training corpus of test documents, one string at a time. Texts are compared word by
word, after ASCII letters became lower case and punctuation was removed.
"""

from __future__ import annotations

import pickle
import re
import string
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

#: A word or an n-gram, with the positions of its first and last character.
Located = tuple[str, tuple[int, int]]


def form_ngrams(sequence: Iterable[T], n: int) -> Iterator[tuple[T, ...]]:
    """Yields each `n` consecutive items of a sequence; none if it has fewer."""
    items, n = iter(sequence), max(n, 1)
    window = deque(islice(items, n - 1), maxlen=n)
    for item in items:
        window.append(item)
        yield tuple(window)


def word_ngrams(s: str, n: int) -> Iterator[str]:
    """Yields each `n` consecutive words of a text, joined by single spaces.

    Words are separated by whitespace. A text of fewer than `n` words yields nothing.
    """
    return (" ".join(words) for words in form_ngrams(iter(s.split()), n))


def split_indices(s: str) -> Iterator[Located]:
    """Yields the words of a text with the positions of their first and last character."""
    return ((found.group(), (found.start(), found.end() - 1)) for found in re.finditer(r"\S+", s))


def word_ngrams_indices(s: str, n: int) -> Iterator[Located]:
    """Yields each `n` consecutive words, with the positions of the first and last character."""
    for words in form_ngrams(split_indices(s), n):
        yield " ".join(word for word, _ in words), (words[0][1][0], words[-1][1][1])


class Janitor:
    """Removes the n-grams of registered texts, and the text around them, from other texts.

    Example::

        janitor = Janitor(ngram_n=13)
        janitor.register_contaminant(test_document)
        clean_parts = janitor.clean(training_document)
    """

    def __init__(
        self,
        ngram_n: int = 13,
        window_to_remove: int = 200,
        too_dirty_cutoff: int = 10,
        minimum_slice_length: int = 200,
        delete_chars: str = string.punctuation,
    ) -> None:
        """Creates a janitor without any registered texts.

        Args:
            ngram_n: the number of words of an n-gram.
            window_to_remove: how many characters before and after a match are removed, too.
            too_dirty_cutoff: a text with more matches than this is removed completely.
            minimum_slice_length: parts of at most this many characters between two matches are
                removed.
            delete_chars: characters that are ignored.
        """
        self.ngram_n = ngram_n
        self.window_to_remove = window_to_remove
        self.too_dirty_cutoff = too_dirty_cutoff
        self.minimum_slice_length = minimum_slice_length
        self.delete_chars = delete_chars
        self.dirt_ngrams: set[str] = set()
        self.translation_table = str.maketrans(
            string.ascii_uppercase, string.ascii_lowercase, delete_chars
        )

    def save_contamination_ngrams(self, filename: str) -> None:
        """Writes the registered n-grams to a file; `load_contamination_ngrams` reads them."""
        Path(filename).write_bytes(pickle.dumps(self.dirt_ngrams))

    def load_contamination_ngrams(self, filename: str) -> None:
        """Replaces the registered n-grams by those in a file. Load only files that you trust."""
        self.dirt_ngrams = pickle.loads(Path(filename).read_bytes())

    def normalize_string(self, s: str) -> str:
        """Returns a text in the form in which it is compared."""
        return s.translate(self.translation_table)

    def register_contaminant(self, dirt_string: str) -> None:
        """Registers the n-grams of a text, for example of a test document."""
        self.dirt_ngrams.update(word_ngrams(self.normalize_string(dirt_string), self.ngram_n))

    def clean(self, dirty_string: str) -> list[str]:
        """Returns the parts of a text without registered n-grams.

        The list is empty if there are too many matches (`too_dirty_cutoff`). It contains the whole
        text if there are none.
        """
        found = (
            (None, *positions)
            for ngram, positions in word_ngrams_indices(dirty_string, self.ngram_n)
            if self.normalize_string(ngram) in self.dirt_ngrams
        )
        return self._split_chunks(dirty_string, found)

    register_contaminant_python = register_contaminant
    clean_python = clean

    def _split_chunks(
        self, dirty_string: str, dirty_parts: Iterable[tuple[object, int, int]]
    ) -> list[str]:
        """Returns what is left of a text around matches `(n-gram, first, last character)`."""
        parts = list(islice(dirty_parts, self.too_dirty_cutoff + 1))
        if len(parts) > self.too_dirty_cutoff:
            return []
        chunks: list[str] = []
        start_of_clean, end = 0, -1
        for _, first, last in parts:
            start = max(0, first - self.window_to_remove)
            end = min(len(dirty_string), last + self.window_to_remove)
            if start - start_of_clean > self.minimum_slice_length:
                chunks.append(dirty_string[start_of_clean:start])
            start_of_clean = end
        if end < len(dirty_string) - self.minimum_slice_length:
            chunks.append(dirty_string[end + 1 :])
        return chunks
