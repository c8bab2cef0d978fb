"""Tests the filters, which extract, select and rewrite answers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm_eval.api.filter import Filter, NotFound
from lm_eval.api.instance import Instance
from lm_eval.api.registry import filter_registry, get_filter, register_filter
from lm_eval.errors import ConfigError, EvalError, UnknownNameError
from lm_eval.filters import build_filter_ensemble
from lm_eval.filters.extraction import (
    MultiChoiceRegexFilter,
    POSFilter,
    RegexFilter,
    WhitespaceFilter,
)
from lm_eval.filters.selection import MajorityVoteFilter, TakeFirstFilter, TakeKFilter
from lm_eval.filters.thinking import Thinking, ThinkingFilter
from lm_eval.filters.transformation import (
    LowercaseFilter,
    MapFilter,
    SPANFilter,
    UppercaseFilter,
)

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


@pytest.mark.parametrize(("fallback", "found"), [(None, None), (0, 0), (" ? ", "?")])
def test_regex_falls_back_where_all_groups_are_empty(fallback: object, found: object) -> None:
    """A fallback that is text is stripped, as in the published harness."""
    step = RegexFilter(r"(a*)x(b*)", fallback=fallback)
    assert step.apply([["x", "axb"]], [{}]) == [[found, "a"]]


def test_a_broken_pattern_is_named() -> None:
    with pytest.raises(ConfigError, match=r"'\(' is not a valid regular expression"):
        RegexFilter("(")


@given(ANSWERS)
def test_take_first_unwraps(answers: list[list[str]]) -> None:
    assert TakeFirstFilter().apply(answers, []) == [group[0] for group in answers]


def test_take_first_k_needs_k_answers() -> None:
    assert TakeKFilter(k=2).apply([["a", "b", "c"]], []) == [["a", "b"]]
    with pytest.raises(ConfigError, match=r"fewer answers \(1\)\. Set the task's `repeats`"):
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


# -- choices, tags, spans ---------------------------------------------------------------------

COURT = {"choices": ["Guilty", "Guilty of Romance", "Not proven"]}


@pytest.mark.parametrize(
    ("answer", "choice"),
    [
        ("The answer is (C).", "(C)"),  # the pattern
        ("I say Guilty of Romance!", "(B)"),  # a choice's text, the longest that fits
        ("guilty", "(A)"),  # ignoring case
        ("My verdict: B", "(B)"),  # a letter after a colon
        ("no idea", "[invalid]"),
        ("", "[invalid]"),
        (None, "[invalid]"),
    ],
)
def test_multiple_choices_are_found_by_pattern_text_or_letter(answer: Any, choice: str) -> None:
    step = MultiChoiceRegexFilter(regex_pattern=r"(\([A-Z]\))", ignore_case=True)
    assert step.apply([[answer]], [COURT]) == [[choice]]


def test_choices_can_be_found_without_punctuation_and_other_things() -> None:
    step = MultiChoiceRegexFilter(ignore_punctuation=True, regexes_to_ignore=["the "])
    assert step.apply([["It is «the U.S.A.»"]], [{"choices": ["China", "USA"]}]) == [["(B)"]]


def test_choices_that_are_not_there_are_asked_for() -> None:
    with pytest.raises(EvalError, match="a document has no `choices`"):
        MultiChoiceRegexFilter().apply([["a"]], [{}])


def test_tags_of_words_are_found() -> None:
    said = "[('Ann', 'PROPN'), ('sings', 'VERB')]"
    assert POSFilter().apply([[said, "none"]], [{}]) == [[["PROPN", "VERB"], ["invalid"]]]


def test_spans_come_in_one_spelling() -> None:
    said = "Person: Ann, Bo $$ Places: Rome\nDate: none $$ company: Acme"
    assert SPANFilter().apply([[said, "nobody"]], [{}]) == [
        ["per: ann $ per: bo $ loc: rome $ org: acme", ""]
    ]


# -- thinking ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end_token", "tags", "answer", "thought", "rest"),
    [
        ("</think>", None, "<think>2+2</think>\n\n4", "<think>2+2", "4"),
        ("</think>", None, "4", "", "4"),
        ("</think>", None, "a</think>b</think> c", "a</think>b", "c"),
        (None, True, "<think>2+2</think> 4 <think>sure?</think>!", "2+2\nsure?", "4 !"),
        (None, True, "<think>2+2 is", "2+2 is", ""),
        (None, ["[", "]"], "[hm] 4", "hm", "4"),
        (None, [["[", "]"], ["(", ")"]], "[hm] 4 (or 5)", "hm\nor 5", "4 "),
        (None, True, "", "", ""),
    ],
)
def test_thinking_is_parted_from_the_conclusion(
    end_token: str | None, tags: Any, answer: str, thought: str, rest: str
) -> None:
    thinking = Thinking.parse(end_token, tags)
    assert thinking is not None
    assert thinking.split(answer) == (thought, rest)


def test_thinking_is_cut_before_extraction_and_the_answer_stays() -> None:
    asked = requests(["<think>It is 7.</think>It is 8."])
    thinking = Thinking.parse("</think>", None)
    assert thinking is not None
    thinking.split_instances(asked)
    steps = [("regex", {"regex_pattern": r"(\d)"}), ("take_first", None)]
    build_filter_ensemble("number", steps).apply(asked)
    assert asked[0].filtered_resps == {"number": "8"}
    assert asked[0].thinking == ["<think>It is 7."]
    assert asked[0].resps == ["<think>It is 7.</think>It is 8."]


def test_thinking_can_be_cut_in_one_pipeline_alone() -> None:
    said = [["<think>7</think>8", 3]]
    assert ThinkingFilter().apply(said, [{}]) == [["8", 3]]
    assert ThinkingFilter(think_end_token="</think>").apply(said, [{}]) == [["8", 3]]


def test_no_marks_mean_no_thinking() -> None:
    assert Thinking.parse(None, None) is None
    assert Thinking.parse(151668, None) is None  # a token's number: the backend cuts there
    with pytest.raises(ConfigError, match="think_tags must be true, a pair of tags"):
        Thinking.parse(None, ["<think>"])


# -- what was not found -----------------------------------------------------------------------


def test_documents_without_an_answer_are_counted_through_later_steps() -> None:
    asked = requests(["7"], ["none"], ["none", "7"], ["none", "none"])
    number = ("regex", {"regex_pattern": r"(\d)"})
    for name, later in (
        ("first", [("remove_whitespace", None), ("uppercase", None), ("take_first", None)]),
        ("vote", [("majority_vote", None), ("take_first", None)]),
        ("all", []),
    ):
        pipeline = build_filter_ensemble(name, [number, *later])
        assert pipeline.extracts
        pipeline.apply(asked)
        pipeline.apply(asked)  # counting again counts the same
    assert [r.extraction_failed for r in asked] == [
        (),
        ("first", "vote", "all"),
        ("first", "vote"),
        ("first", "vote", "all"),
    ]
    kinds = {type(answer) for r in asked for answer in r.filtered_resps.values()}
    assert kinds == {str, list}  # metrics see plain text
    assert asked[1].filtered_resps["first"] == "[INVALID]"


def test_a_filter_of_ones_own_can_say_that_it_found_nothing() -> None:
    asked = requests(["x"])
    own = ("custom", {"filter_fn": lambda resps, docs: [NotFound("?") for _ in resps]})
    build_filter_ensemble("own", [own]).apply(asked)
    assert asked[0].extraction_failed == ("own",)
    assert not build_filter_ensemble("plain", [("take_first", None)]).extracts


# -- every filter -----------------------------------------------------------------------------

ARGUMENTS: dict[str, dict[str, Any]] = {
    "take_first_k": {"k": 1},
    "custom": {"filter_fn": lambda resps, docs: resps},
}
PUBLISHED = {
    *("regex", "regex_pos", "multi_choice_regex", "remove_whitespace", "lowercase", "uppercase"),
    *("map", "format_span", "take_first", "take_first_k", "majority_vote", "custom"),
}
UNWRAPPING = {"take_first"}


def test_the_published_filters_are_there() -> None:
    assert set(filter_registry) >= PUBLISHED


@given(st.sampled_from(sorted(PUBLISHED | {"remove_thinking"})), ANSWERS)
def test_every_filter_keeps_the_documents_and_repeats_itself(
    name: str, answers: list[list[str]]
) -> None:
    docs = [{"choices": ["a", "", "\N{SNOWMAN}", "("]} for _ in answers]
    step = get_filter(name)(**ARGUMENTS.get(name, {}))
    before = [list(group) for group in answers]
    filtered = list(step.apply(answers, docs))
    assert answers == before  # what the model said is not touched
    assert filtered == list(step.apply(answers, docs))
    assert len(filtered) == len(answers)
    if name not in UNWRAPPING:
        sizes = [1 if name in ("majority_vote", "take_first_k") else len(g) for g in answers]
        assert [len(group) for group in filtered] == sizes
