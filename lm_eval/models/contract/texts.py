"""The texts that models are checked with."""

from __future__ import annotations

from typing import Any

PAIRS = [
    ("The capital of France is", " Paris"),
    ("The capital of France is", " a city on the river"),
    ("Question: What is 2 + 3?\nAnswer:", " 5"),
    ("The days of the week are Monday,", " Tuesday, Wednesday"),
]
TEXTS = [
    ("The ferry leaves the harbor at eight.",),
    ("A library lends books, but this one also lends tools and two old canoes.",),
    ("Snow fell.",),
]
PROMPTS = [
    "The capital of France is",
    "Question: What is 2 + 3?\nAnswer:",
    "The days of the week are Monday, Tuesday,",
    "Once upon a time there was",
    "def add(a, b):\n    return",
    "The ferry leaves the harbor at eight. It",
]
#: Texts with characters that are more than one byte or one token, and with whitespace.
UNUSUAL = [
    ("Żółta łódź płynie do", " Świnoujścia"),
    ("東京は日本の", "首都です"),
    ("A smile:", " 🙂 and a tab:\tend"),
    ("Line one\nLine two\n", "Line three"),
]
#: A context and two continuations of it, the second of which goes on after the first.
CHAINS = [
    ("The ferry leaves the", " harbor at", " eight"),
    ("Question: What is 2 + 3?\nAnswer:", " It is", " five, I think"),
]
#: Continuations none of which begins another, so at most one of them can be what follows.
EXCLUSIVE = [
    *(" Paris", " London", " Berlin", " Madrid", " Rome", " Oslo", " Vienna", " Prague", " Lisbon"),
    *(" one", " two", " three", " four", " five", " six", " seven", " eight", " nine", " ten"),
    *(" red", " green", " blue", " white", " black", " old", " new", " big", " small", " far"),
]
FILLER = "Item {number} is on shelf {shelf}."


def settings(max_gen_toks: int, until: Any = ()) -> dict[str, Any]:
    """Returns the settings of a greedy request; `until` is a stop string or several of them."""
    stops = until if isinstance(until, str) else list(until)
    return {"until": stops, "max_gen_toks": max_gen_toks, "do_sample": False}


def long_text(characters: int) -> str:
    """Returns a text of at least so many characters, in which no sentence occurs twice."""
    sentences: list[str] = []
    length = 0
    while length < characters:
        number = len(sentences)
        sentences.append(FILLER.format(number=number, shelf=number * 7 % 100))
        length += len(sentences[-1]) + 1
    return " ".join(sentences)
