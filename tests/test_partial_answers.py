"""Tests of answers that grow token by token: where they end, and how little is decoded for it."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm_eval.models.partial_answers import GrowingAnswer, StopConditions

END = 0
LETTERS = "_abcdefgh"


def decode(tokens: list[int]) -> str:
    return "".join(LETTERS[token] for token in tokens)


def grow(
    tokens: list[int], stops: tuple[str, ...], sizes: list[int], most: int = 100
) -> tuple[bool, list[int]]:
    """Adds tokens in portions of the given sizes; returns whether the answer ended, and it."""
    answer = GrowingAnswer(decode, StopConditions(frozenset({END}), stops), most)
    left, ended = list(tokens), False
    for size in sizes:
        new, left = left[:size], left[size:]
        if ended := answer.add(new):
            break
    return ended, answer.tokens


@pytest.mark.parametrize(
    ("tokens", "ended", "expected"),
    [
        ([1, 2, 3], False, [1, 2, 3]),
        ([1, 2, END, 3], True, [1, 2]),
        ([END], True, []),
        ([1, 3, 4, 5, 6], True, [1, 3, 4]),  # "cd" is completed
        ([1, 3, END, 3, 4], True, [1, 3]),  # a stop string after the end does not count
        ([1, 3, 4, END], True, [1, 3, 4]),
        ([1, END, 3, 4, 5], True, [1]),
    ],
)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_an_answer_ends_at_the_first_token_or_string_that_ends_it(
    tokens: list[int], ended: bool, expected: list[int], size: int
) -> None:
    assert grow(tokens, ("cd",), [size] * 5) == (ended, expected)


def test_tokens_beyond_the_maximum_are_dropped() -> None:
    assert grow([1, 2, 3, 4, 5], (), [3, 3], most=4) == (True, [1, 2, 3, 4])
    # The string would be complete one token after the end.
    assert grow([1, 2, 3, 4, 5], ("de",), [3, 3], most=4) == (True, [1, 2, 3, 4])


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 4), min_size=1, max_size=60),
    st.lists(st.text("abcd", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(1, 9), min_size=60, max_size=60),
)
def test_portions_of_any_size_give_the_same_answer(
    tokens: list[int], stops: list[str], sizes: list[int]
) -> None:
    """The answer ends at the first token that ends it, or completes a stop string."""
    expected: list[int] = []
    ended = False
    for token in tokens:
        if token == END:
            ended = True
            break
        expected.append(token)
        if any(stop in decode(expected) for stop in stops):
            ended = True
            break
    assert grow(tokens, tuple(stops), sizes) == (ended, expected)


def test_a_tail_that_begins_within_a_character_does_not_end_an_answer() -> None:
    """Bytes of one character have another text if the first of them are missing."""

    def of_bytes(tokens: list[int]) -> str:
        return bytes(tokens).decode(errors="replace")

    text = "aé" * 9 + "ééé�b"
    for size in range(1, 12):
        answer = GrowingAnswer(of_bytes, StopConditions(frozenset(), ("�b",)), 200)
        left = list(text.encode())
        while left and not answer.add(left[:size]):
            left = left[size:]
        assert of_bytes(answer.tokens) == text


def test_long_answers_are_not_decoded_again_and_again() -> None:
    """Only the new tokens are decoded, with a few before them, until a stop string is found."""
    lengths: list[int] = []

    def counted(tokens: list[int]) -> str:
        lengths.append(len(tokens))
        return decode(tokens)

    conditions = StopConditions(frozenset({END}), ("gh",))
    answer = GrowingAnswer(counted, conditions, 2000)
    rng = random.Random(0)
    for _ in range(100):
        assert not answer.add([rng.randrange(1, 7) for _ in range(8)])
    assert max(lengths) <= 8 + conditions.tail_length
    lengths.clear()
    assert answer.add([1, 2, 3, 7, 8, 1, 2, 3])
    assert len(answer.tokens) == 805
    # Twice as a whole, to be sure: with all new tokens, and with those up to the stop string.
    assert sorted(lengths)[-3:] == [8 + conditions.tail_length, 805, 808]
    ended = GrowingAnswer(counted, conditions, 800)
    lengths.clear()
    assert ended.add([1] * 800)
    assert max(lengths) == 800  # one portion of as many tokens
