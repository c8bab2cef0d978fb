"""Tests that requests are tokenized as in the published harness."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval.models.conventions import (
    Generation,
    cut_at_stop,
    fit_window,
    keep_end,
    move_spaces,
    read_generation,
    rolling_windows,
    split_pair,
)


def test_spaces_at_the_end_of_the_context_go_to_the_continuation() -> None:
    assert move_spaces("Answer: ", "yes") == ("Answer:", " yes")
    assert move_spaces("Answer:", " yes") == ("Answer:", " yes")
    assert move_spaces(" \n", "yes") == ("", " \nyes")


def test_a_pair_is_split_at_the_length_of_the_context() -> None:
    assert split_pair([5, 6, 7, 8], [5, 9], prefix=0) == ([5, 9], [7, 8])


def test_without_a_context_the_prefix_token_takes_its_place_once() -> None:
    assert split_pair([5, 6], [], prefix=0) == ([0], [5, 6])
    assert split_pair([0, 5, 6], [], prefix=0) == ([0], [5, 6])


def test_the_last_token_is_predicted_and_not_read() -> None:
    assert fit_window([1, 2], [3, 4], max_length=10) == ([1, 2, 3], [3, 4])


def test_what_does_not_fit_loses_its_beginning() -> None:
    assert fit_window([1, 2, 3, 4], [5, 6], max_length=3) == ([3, 4, 5], [5, 6])
    assert fit_window([1, 2], [3, 4, 5, 6, 7], max_length=3) == ([4, 5, 6], [5, 6, 7])


def test_an_empty_continuation_predicts_nothing() -> None:
    assert fit_window([1, 2], [], max_length=10)[1] == []


def test_rolling_windows_of_a_short_text_are_one_window_behind_the_prefix() -> None:
    assert rolling_windows([1, 2, 3], prefix=0, max_length=5) == [([0], [1, 2, 3])]


def test_the_last_rolling_window_is_given_all_the_context_that_fits() -> None:
    assert rolling_windows(list(range(1, 11)), prefix=0, max_length=4) == [
        ([0], [1, 2, 3, 4]),
        ([4], [5, 6, 7, 8]),
        ([6, 7, 8], [9, 10]),
    ]


@given(st.lists(st.integers(1, 9), max_size=60), st.integers(1, 20))
def test_rolling_windows_predict_every_token_once_and_never_read_too_much(
    tokens: list[int], max_length: int
) -> None:
    windows = rolling_windows(tokens, 0, max_length)
    assert [token for _, wanted in windows for token in wanted] == tokens
    done = 0
    for context, wanted in windows:
        assert 0 < len(context) + len(wanted) - 1 <= max_length
        before = [0, *tokens[:done]]
        assert before[-len(context) :] == context
        done += len(wanted)


@pytest.mark.parametrize(
    ("text", "stops", "kept"),
    [
        ("one two", ["x"], "one two"),
        ("one\ntwo Q: three", ["Q:", "\n"], "one"),
        ("Q: at once", ["Q:"], ""),
        ("no stops", [], "no stops"),
        ("an empty one", [""], "an empty one"),
    ],
)
def test_text_is_cut_at_the_first_stop_string(text: str, stops: list[str], kept: str) -> None:
    assert cut_at_stop(text, stops) == kept


def test_generation_is_greedy_unless_sampling_is_asked_for() -> None:
    assert not read_generation({}, 16).sampled
    assert not read_generation({"do_sample": False, "temperature": 0.7}, 16).sampled
    assert not read_generation({"do_sample": True, "temperature": 0.0}, 16).sampled
    assert read_generation({"temperature": 0.7}, 16).temperature == 0.7
    assert read_generation({"do_sample": True}, 16).temperature == 1.0


def test_generation_settings_are_read_under_all_their_names() -> None:
    read = read_generation({"until": "\n", "max_new_tokens": 8, "top_k": 3, "top_p": 0.5}, 16)
    assert read == Generation(until=("\n",), max_gen_toks=8, top_k=3, top_p=0.5)
    assert read_generation({"until": None}, 16) == Generation(max_gen_toks=16)


def test_a_long_context_keeps_its_end() -> None:
    assert keep_end([1, 2, 3], 2) == [2, 3]
    assert keep_end([1, 2, 3], 5) == [1, 2, 3]
    assert keep_end([1, 2, 3], 0) == []
