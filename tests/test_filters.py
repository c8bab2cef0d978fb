"""Filters find, choose and rewrite answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval.api.filter import Filter
from lm_eval.api.instance import Instance
from lm_eval.api.registry import register_filter
from lm_eval.errors import ConfigError, EvalError, UnknownNameError
from lm_eval.filters import build_filter_ensemble
from lm_eval.filters.extraction import RegexFilter, WhitespaceFilter
from lm_eval.filters.selection import MajorityVoteFilter, TakeFirstFilter, TakeKFilter
from lm_eval.filters.transformation import LowercaseFilter, MapFilter, UppercaseFilter

ANSWERS = st.lists(st.lists(st.text(), min_size=1, max_size=5), min_size=1, max_size=5)


def requests(*answers: list[str]) -> list[Instance]:
    return [
        Instance("generate_until", {}, ("", {}), 0, ("t", i, 1), resps=list(given))
        for i, given in enumerate(answers)
    ]


def test_regex_takes_the_first_match_and_strips_it() -> None:
    found = RegexFilter(r"answer is (.*)\.").apply([["the answer is  7 . answer is 8."]], [{}])
    assert found == [["7 . answer is 8"]]


def test_regex_can_take_the_last_match() -> None:
    assert RegexFilter(r"\d+", group_select=-1).apply([["1 then 2 then 3"]], [{}]) == [["3"]]


def test_regex_with_several_groups_gives_the_first_that_matched() -> None:
    assert RegexFilter(r"(a)?(b)").apply([["xb"]], [{}]) == [["b"]]


@pytest.mark.parametrize("answer", ["nothing here", "", None, 3])
def test_regex_falls_back_where_nothing_is_found(answer: object) -> None:
    assert RegexFilter(r"\d{9}", fallback="?").apply([[answer]], [{}]) == [["?"]]


def test_regex_falls_back_where_there_are_too_few_matches() -> None:
    assert RegexFilter(r"\d", group_select=2, fallback="?").apply([["1 2"]], [{}]) == [["?"]]


def test_a_broken_pattern_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'\(' is not a regular expression"):
        RegexFilter("(")


@given(ANSWERS)
def test_take_first_unwraps(answers: list[list[str]]) -> None:
    assert TakeFirstFilter().apply(answers, []) == [group[0] for group in answers]


def test_take_first_k_needs_k_answers() -> None:
    assert TakeKFilter(k=2).apply([["a", "b", "c"]], []) == [["a", "b"]]
    with pytest.raises(ConfigError, match="only 1 answers a document; raise the task's `repeats`"):
        TakeKFilter(k=2).apply([["a", "b"], ["a"]], [])


@given(ANSWERS)
def test_majority_vote_gives_a_most_frequent_answer(answers: list[list[str]]) -> None:
    for group, (vote,) in zip(answers, MajorityVoteFilter().apply(answers, []), strict=True):
        assert group.count(vote) == max(map(group.count, group))


def test_majority_vote_gives_the_first_on_a_tie() -> None:
    assert MajorityVoteFilter().apply([["b", "a", "a", "b"]], []) == [["b"]]


@given(ANSWERS)
def test_rewriting_filters_keep_the_shape(answers: list[list[str]]) -> None:
    shape = [len(group) for group in answers]
    for step in (LowercaseFilter(), UppercaseFilter(), WhitespaceFilter(), MapFilter({"a": 1})):
        assert [len(group) for group in step.apply(answers, [])] == shape


def test_map_looks_answers_up() -> None:
    assert MapFilter({"yes": 1, "no": 0}, -1).apply([["yes", "no", "?"]], []) == [[1, 0, -1]]


def test_a_pipeline_runs_its_steps_in_order_and_keeps_the_answers() -> None:
    asked = requests(["A is 1", "A is 2"], ["none"])
    pipeline = build_filter_ensemble(
        "first", [("lowercase", None), ("regex", {"regex_pattern": "a is (.)"}), ("take_first", {})]
    )
    pipeline.apply(asked)
    assert [request.filtered_resps for request in asked] == [
        {"first": "1"},
        {"first": "[invalid]"},
    ]
    assert asked[0].resps == ["A is 1", "A is 2"]


def test_arguments_may_stand_under_kwargs() -> None:
    asked = requests(["a"])
    steps = [("map", {"kwargs": {"mapping_dict": {"a": "b"}}}), ("take_first", None)]
    build_filter_ensemble("mapped", steps).apply(asked)
    assert asked[0].filtered_resps == {"mapped": "b"}


def test_an_argument_a_filter_does_not_take_is_named() -> None:
    with pytest.raises(ConfigError, match="filter 'take_first_k' of pipeline 'p'"):
        build_filter_ensemble("p", [("take_first_k", {"kk": 3})])


def test_an_unknown_filter_offers_the_nearest() -> None:
    with pytest.raises(UnknownNameError, match=r"unknown filter 'regx'\. Did you mean 'regex'"):
        build_filter_ensemble("p", [("regx", None)])


def test_a_custom_function_and_a_registered_class_can_be_steps() -> None:
    @register_filter("test_shout")
    class Shout(Filter):
        def apply(self, resps, docs):  # type: ignore[no-untyped-def]
            return [[answer + "!" for answer in answers] for answers in resps]

    asked = requests(["a"])
    first = ("custom", {"filter_fn": lambda resps, docs: [group[0] for group in resps]})
    build_filter_ensemble("both", [("test_shout", None), first]).apply(asked)
    assert asked[0].filtered_resps == {"both": "a!"}


def test_a_step_that_loses_answers_is_an_error() -> None:
    lossy = ("custom", {"filter_fn": lambda resps, docs: []})
    with pytest.raises(EvalError, match="returned 0 answers for 1 requests"):
        build_filter_ensemble("lossy", [lossy]).apply(requests(["a"]))
