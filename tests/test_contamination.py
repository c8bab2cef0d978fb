"""Tests that overlaps are found and none is invented, against a reading in plain Python."""

from __future__ import annotations

import random
import re
import string
import sys
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval.contamination import hashing, index, matcher
from lm_eval.contamination.finding_types import DocumentFinding
from lm_eval.contamination.index import MIN_WORDS, Query, build_index
from lm_eval.contamination.matcher import Matcher, Piece
from lm_eval.contamination.places import Places
from lm_eval.contamination.report import Origin, Report
from lm_eval.contamination.words import normalize, split, to_utf8, valid_utf8, word_bounds

TABLE = str.maketrans(string.ascii_uppercase, string.ascii_lowercase, string.punctuation)


# -- the definition, in plain Python --------------------------------------------------------------


def plain_words(text: str) -> list[str]:
    return to_utf8(text).decode().translate(TABLE).split()


def plain_ngrams(words: Sequence[str], n: int) -> list[str]:
    return [" ".join(words[i : i + n]) for i in range(len(words) - n + 1)]


def plain_found(question: str, answer: str, records: Sequence[str], n: int) -> list[int]:
    """Returns the numbers of the n-grams of a document that occur in a record."""
    words = plain_words(question) + plain_words(answer)
    length = n if len(words) >= n else len(words)
    if length < min(n, MIN_WORDS):
        return []
    known = {gram for record in records for gram in plain_ngrams(plain_words(record), length)}
    return [i for i, gram in enumerate(plain_ngrams(words, length)) if gram in known]


# -- ours -----------------------------------------------------------------------------------------


def scan(
    documents: Sequence[tuple[str, str]], pieces: Sequence[Piece], n: int
) -> dict[int, DocumentFinding]:
    queries = [
        Query("t", i, normalize(question), normalize(answer))
        for i, (question, answer) in enumerate(documents)
    ]
    built, layout = build_index(queries, n)
    searching = Matcher(built)
    for _ in searching.feed(pieces):
        pass
    places = Places(built.units)
    places.add(0, searching.hits)
    report = Report(built, layout, places, lambda shard: Origin("corpus.txt"))
    return {doc.doc_id: doc for doc in report.documents(0.0, lambda task, doc_id: str(doc_id))}


def cut(record: int, text: str, draw: random.Random) -> Iterator[Piece]:
    """Yields a record in pieces that end at whitespace."""
    data = to_utf8(text)
    places = [found.end() for found in re.finditer(rb"[ \n\t\r]", data) if draw.random() < 0.2]
    for begin, end in zip([0, *places], [*places, len(data)], strict=True):
        yield Piece(record, data[begin:end], begin == 0)


SPACES = [" ", "  ", "\n", "\n\n", "\t", "\r\n", "\x85", "\xa0", "\u2003", "\u3000", "\x1c", " - "]
WORDS = [
    "a",
    "B",
    "c",
    "Dog",
    "don't",
    "naïve",
    "Ünder",
    "漢字",
    "«x»",
    "e.g.",
    "42",
    "x\x00y",
    "ſ",
]
WORDS += ["--", "\u200b", "🙂", "internationalization", "Donaudampfschifffahrtsgesellschaft" * 2]


def sentence(draw: random.Random, vocabulary: Sequence[str], most: int) -> str:
    words = [draw.choice(vocabulary) for _ in range(draw.randint(0, most))]
    return "".join(
        word
        + draw.choice(["", "", ",", "!?"])
        + (draw.choice(SPACES) if draw.random() < 0.3 else " ")
        for word in words
    )


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 2**32), st.sampled_from([1, 2, 3, 5, 6, 8, 13]), st.integers(1, 18))
def test_exactly_the_overlaps_of_the_definition_are_found(seed: int, n: int, variety: int) -> None:
    draw = random.Random(seed)
    vocabulary = draw.sample(WORDS, min(variety, len(WORDS)))
    documents = [(sentence(draw, vocabulary, 30), sentence(draw, vocabulary, 6)) for _ in range(8)]
    records = [sentence(draw, vocabulary, 60) for _ in range(6)]
    for question, answer in draw.sample(documents, 3):  # planted, in other layouts
        text = f"{question} {answer}".upper() if question.isascii() else f"{question}\n({answer})"
        at = draw.randrange(len(records))
        records[at] += " " + text + " " + sentence(draw, vocabulary, 5)
    pieces = [piece for i, text in enumerate(records) for piece in cut(i, text, draw)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matcher, "BLOCK", draw.choice([1, 40, 300, 1 << 20]))
        patch.setattr(index, "_CHUNK", draw.choice([1, 7, 50, 1 << 20]))
        found = scan(documents, pieces, n)
    for number, (question, answer) in enumerate(documents):
        expected = plain_found(question, answer, records, n)
        document = found.get(number)
        mine = [i for f, c in document.runs for i in range(f, f + c)] if document else []
        assert mine == expected
        if document is None:
            continue
        asked = len(plain_words(question))
        assert document.with_answer.found == len(expected)
        if not document.short:
            assert document.question.found == sum(i + n <= asked for i in expected)
        for match in document.matches:
            words = match.words.removesuffix(" …").split(" ")
            whole = plain_words(question) + plain_words(answer)
            assert whole[match.position : match.position + len(words)] == words
            assert match.length == len(words) or match.words.endswith(" …")
            passage = " ".join(plain_words(records[match.record]))
            assert " ".join(words) in passage


def test_normalization_is_that_of_the_definition_for_every_character() -> None:
    step = 500  # the characters are checked in groups, which is faster
    for first in range(0, sys.maxunicode + 1, step):
        codes = range(first, min(first + step, sys.maxunicode + 1))
        text = "".join(f"a{chr(code)}B {chr(code)} " for code in codes)
        for normalized in (normalize(text), split(to_utf8(text))[0]):
            assert normalized.decode().split(" ") == plain_words(text)


@settings(max_examples=50, deadline=None)
@given(st.text(st.sampled_from("aB.- \n\u3000\xa0é漢\x1c"), max_size=40))
def test_words_are_found_in_the_original_text(text: str) -> None:
    data = text.encode()
    starts, ends = word_bounds(data)
    originals = [data[a:b].decode() for a, b in zip(starts, ends, strict=True)]
    assert [" ".join(plain_words(word)) for word in originals] == plain_words(text)
    assert originals == [text[a:b] for a, b in matcher.word_spans(text)]


@pytest.mark.parametrize("text", ["", " ", "...", "\u3000", "\xa0", " - ", "\n\n", "a\xa0", "é"])
def test_texts_at_the_edge_are_normalized(text: str) -> None:
    normalized, ends = split(to_utf8(text))
    assert normalized == normalize(text) == " ".join(plain_words(text)).encode()
    assert len(ends) == len(plain_words(text))


def test_invalid_utf8_is_read_as_replacement_characters() -> None:
    data = "naïve caf".encode() + b"\xe9 \xff\xfe ok"
    assert valid_utf8(data).decode() == data.decode(errors="replace")


def test_ngrams_never_cross_records() -> None:
    words = [f"w{i}" for i in range(13)]
    first, second = " ".join(words[:7]), " ".join(words[7:])
    assert (
        scan([(" ".join(words), "")], [Piece(0, first.encode()), Piece(1, second.encode())], 13)
        == {}
    )
    both = [Piece(0, f"{first}\n".encode()), Piece(0, second.encode(), begins=False)]
    found = scan([(" ".join(words), "")], both, 13)
    assert found[0].with_answer.found == 1


def test_a_match_shows_the_original_text_and_its_place() -> None:
    question = "Which of these animals, by far the largest on Earth, eats krill and nothing else?"
    text = "Ünrelated. One two three.\nwhich of THESE animals by far (the largest) on earth "
    text += "eats krill and nothing else! Yes."
    found = scan(
        [(question, "the blue whale")], [Piece(0, b"nothing"), Piece(1, text.encode())], 13
    )
    [match] = found[0].matches
    assert (match.file, match.record, match.offset) == ("corpus.txt", 1, 0)
    assert "THESE animals by far (the largest)" in match.passage
    assert match.side == "question"
    assert match.length == found[0].question.longest == 15
    assert found[0].question.overlap == 1
    assert found[0].with_answer.ngrams == 6
    assert found[0].with_answer.found == 3


def test_an_answer_that_was_found_is_told_apart_from_the_question() -> None:
    question, answer = " ".join(f"q{i}" for i in range(13)), "yes it is"
    text = f"{question} {answer}"
    found = scan([(question, answer)], [Piece(0, text.encode())], 13)
    assert found[0].question.found == 1
    assert found[0].with_answer.found == 4
    assert [match.side for match in found[0].matches] == ["answer"]


def test_a_short_document_is_matched_as_a_whole_and_a_very_short_one_not_at_all() -> None:
    documents = [("Who wrote Emma and Persuasion?", "Jane Austen"), ("Who wrote Emma?", "Austen")]
    text = b"Quiz: who wrote 'Emma' and 'Persuasion'? Jane Austen. Who wrote Emma? Austen."
    found = scan(documents, [Piece(0, text)], 13)
    assert list(found) == [0]
    assert found[0].short
    assert found[0].with_answer.longest == 7
    assert found[0].question.found == 0  # a short question alone is not searched for
    assert scan(documents, [Piece(0, b"who wrote emma and persuasion I do not know")], 13) == {}


def test_equal_ngrams_of_several_documents_are_found_in_all_of_them() -> None:
    shared = " ".join(f"w{i}" for i in range(20))
    found = scan([(f"one {shared}", ""), (f"{shared} two", "")], [Piece(0, shared.encode())], 13)
    assert {number: doc.with_answer.found for number, doc in found.items()} == {0: 8, 1: 8}


def test_hashes_that_collide_neither_hide_nor_invent_matches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With hashes of two bits nearly everything collides; the text decides."""

    def weak(text: bytes, ends: hashing.Positions) -> hashing.Hashes:
        return hashing.word_hashes(text, ends) & np.uint64(3)

    monkeypatch.setattr(index, "word_hashes", weak)
    monkeypatch.setattr(matcher, "word_hashes", weak)
    draw = random.Random(5)
    vocabulary = ["a", "b", "c", "d"]
    documents = [(sentence(draw, vocabulary, 12), "") for _ in range(40)]
    records = [sentence(draw, vocabulary, 200) for _ in range(3)]
    found = scan(documents, [Piece(i, text.encode()) for i, text in enumerate(records)], 3)
    for number, (question, answer) in enumerate(documents):
        expected = plain_found(question, answer, records, 3)
        assert (found[number].with_answer.found if number in found else 0) == len(expected)
