"""Tests that model classes with their own loops find the published helpers without torch."""

from __future__ import annotations

from lm_eval.models.utils import (
    Grouper,
    Reorderer,
    _add_special_kwargs,
    has_bos_prefix,
    undistribute,
)
from lm_eval.utils import pattern_match


def test_answers_to_sorted_requests_return_to_the_order_of_asking() -> None:
    reorderer = Reorderer(["ccc", "a", "bb"], len)
    assert reorderer.get_reordered() == ["a", "bb", "ccc"]
    assert reorderer.get_original(["A", "BB", "CCC"]) == ["CCC", "A", "BB"]


def test_answers_to_grouped_requests_return_to_the_order_of_asking() -> None:
    grouper = Grouper([1, 2, 3, 4, 5], lambda number: number % 2)
    assert grouper.get_grouped() == {1: [1, 3, 5], 0: [2, 4]}
    assert grouper.get_original({0: ["x", "y"], 1: ["p", "q", "r"]}) == ["p", "x", "q", "y", "r"]


def test_what_was_dealt_out_is_collected_in_turn() -> None:
    assert undistribute([[1, 4, 7], [2, 5], [3, 6]]) == [1, 2, 3, 4, 5, 6, 7]
    assert undistribute([[1, 2], [3]]) == [1, 3, 2]
    assert undistribute([]) == []


def test_a_beginning_is_recognised() -> None:
    assert has_bos_prefix("<s>a", "<s>")
    assert has_bos_prefix("<s>a", ["<b>", "<s>"])
    assert not has_bos_prefix("a", "<s>")
    assert not has_bos_prefix("a", [])
    assert not has_bos_prefix("a")


def test_special_tokens_are_as_first_decided() -> None:
    assert _add_special_kwargs(None) == {}
    assert _add_special_kwargs(None, False) == {"add_special_tokens": False}
    assert _add_special_kwargs(True, False) == {"add_special_tokens": True}


def test_patterns_match_names() -> None:
    assert pattern_match(["a*", "b"], ["b", "ab", "c"]) == ["ab", "b"]
    assert pattern_match("arc_*", ["arc_easy", "x"]) == ["arc_easy"]
