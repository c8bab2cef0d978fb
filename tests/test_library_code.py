"""Tests the Python helpers in benchmark folders on hand-made answers."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


def code(module: str) -> Any:
    return importlib.import_module(f"lm_eval.tasks.{module}")


@pytest.mark.parametrize(
    ("first", "second", "equal"),
    [
        ("\\frac12", "\\frac{1}{2}", True),
        ("1/2", "\\dfrac{1}{2}", True),
        ("0.5", "\\frac{1}{2}", True),
        (".5", "0.5", True),
        ("x = 5", "5", True),
        ("\\sqrt3", "\\sqrt{3}", True),
        ("12\\text{ cm}", "12", True),
        ("90^\\circ", "90", True),
        ("1/3", "\\frac{1}{2}", False),
        ("xyz = 5", "5", False),
    ],
)
def test_answers_of_math_that_mean_the_same_are_the_same(
    first: str, second: str, equal: bool
) -> None:
    assert code("hendrycks_math.utils").is_equiv(first, second) is equal


def test_the_last_box_of_a_solution_is_its_answer() -> None:
    boxed = importlib.import_module("lm_eval.helpers").last_boxed
    assert boxed("so \\boxed{1}, no: $\\boxed{\\frac{1}{2}}$.") == "\\frac{1}{2}"
    assert boxed("$\\boxed 7$ it is") == "7"
    assert boxed("nothing") is None


@pytest.mark.parametrize(
    ("words", "number"),
    [("seven", 7), ("two hundred and five", 205), ("three thousand forty two", 3042)],
)
def test_numbers_in_words_are_numbers(words: str, number: int) -> None:
    assert code("bbh._answers.filters").number_of(words.split()) == number


def test_sorted_words_are_taken_where_they_were_last_said() -> None:
    sort = code("bbh._answers.filters").SortedWords()
    docs = [{"input": "Sort: List: oven apple box"}]
    assert sort.apply([["oven, box... so: apple box oven"]], docs) == [["apple box oven"]]


def test_drop_gives_part_of_the_points_for_one_of_two_spans() -> None:
    none = {"number": [], "date": [], "spans": []}
    answer = {"number": "", "date": {}, "spans": ["Tom Brady", "Wes Welker"]}
    score = code("drop.answers").process_results
    doc = {"answer": answer, "validated_answers": none}
    assert score(doc, ["tom brady"]) == {"em": 0.0, "f1": 0.5}
    number = {"answer": {**answer, "number": "3"}, "validated_answers": none}
    assert score(number, ["the 3"]) == {"em": 1.0, "f1": 1.0}
    assert score(number, ["4"])["f1"] == 0.0


def test_squad_counts_words_without_articles_and_punctuation() -> None:
    squad = importlib.import_module("lm_eval.helpers")
    assert squad.compute_exact("The cat!", "cat") == 1
    assert squad.compute_f1("a red cat", "the red dog") == 0.5
    assert squad.compute_f1("", "") == 1.0


def test_squad_finds_the_best_threshold_for_abstaining() -> None:
    """Correct where sure, wrong where unsure: abstaining on the latter gains a point."""
    items = [(1.0, True, True, 0.1), (0.0, False, True, 0.9)]
    assert code("squadv2.task")._best(items) == 100.0
    assert code("squadv2.task")._all(items) == 50.0


def test_rouge_is_that_of_the_library_for_it() -> None:
    scorer = pytest.importorskip("rouge_score.rouge_scorer").RougeScorer(
        ["rouge1", "rouge2", "rougeLsum"]
    )
    ours = code("truthfulqa.likeness")._SIMILARITIES
    texts = ["The cat sat. on the mat .", "A cat is on a mat . The dog\nsat.", "no", "mat the on"]
    for answer in texts:
        for reference in texts:
            split = [text.replace(" . ", ".\n") for text in (reference, answer)]
            theirs = scorer.score(*split)
            for name, key in (("rouge1", "rouge1"), ("rouge2", "rouge2"), ("rougeL", "rougeLsum")):
                assert ours[name](answer, reference) == pytest.approx(100 * theirs[key].fmeasure)


@pytest.mark.parametrize(
    ("instruction", "settings", "good", "bad"),
    [
        ("keywords:existence", {"keywords": ["Lamp"]}, "a lamp", "a boat"),
        ("keywords:forbidden_words", {"forbidden_words": ["boat"]}, "boats", "a Boat"),
        (
            "length_constraints:number_sentences",
            {"num_sentences": 2, "relation": "at least"},
            "Dr. Lee came. She left.",
            "Dr. Lee came at 5 p.m. on Monday.",
        ),
        ("length_constraints:number_paragraphs", {"num_paragraphs": 2}, "a ***\nb", "a ***\n***b"),
        (
            "length_constraints:nth_paragraph_first_word",
            {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
            "One.\n\nthen, two.",
            "Then.\n\nTwo.",
        ),
        ("detectable_format:number_bullet_lists", {"num_bullets": 2}, "* a\n- b", "* a\n** b **"),
        ("detectable_format:json_format", {}, '```json\n{"a": 1}\n```', "{a: 1}"),
        ("detectable_format:title", {}, "<<A title>>\ntext", "<<>>"),
        ("combination:two_responses", {}, "yes ****** no", "yes ****** yes"),
        ("startend:end_checker", {"end_phrase": "The end."}, 'So. "The End."', "The end. So."),
        ("startend:quotation", {}, '"so"', '"'),
        (
            "change_case:capital_word_frequency",
            {"capital_frequency": 2, "capital_relation": "less than"},
            "ONE word",
            "TWO WORDS",
        ),
        ("change_case:english_lowercase", {}, "this is plain english text", "This is"),
        ("language:response_language", {"language": "de"}, "Das ist ein Haus am See.", "A house"),
        ("punctuation:no_comma", {}, "a b", "a, b"),
    ],
)
def test_an_instruction_is_followed_or_not(
    instruction: str, settings: dict[str, Any], good: str, bad: str
) -> None:
    pytest.importorskip("langdetect")
    pytest.importorskip("nltk")
    is_followed = importlib.import_module("lm_eval.helpers").follows_instruction
    assert is_followed(good, instruction, {**settings, "other": None})
    assert not is_followed(bad, instruction, settings)


def test_a_biased_answer_is_the_one_that_the_stereotype_suggests() -> None:
    bias = code("bbq.bias")
    doc = {
        "ans0": "The grandfather",
        "ans1": "The grandson",
        "ans2": "Not known",
        "answer_info": {"ans0": ["g", "old"], "ans1": ["s", "nonOld"], "ans2": ["x", "unknown"]},
        "additional_metadata": {"stereotyped_groups": ["old"]},
        "label": 2,
        "question_polarity": "neg",
        "context_condition": "ambig",
        "category": "Age",
    }
    assert bias.correct_indices(doc) == list(range(2, 12))
    judged = bias.process_results_written(doc, ["It was the grandfather."])["amb_bias_score_Age"]
    assert judged == (0.0, True, True, False)
    assert bias.bias_ambiguous([judged]) == 1.0
    other = bias.process_results_written(doc, ["Nobody knows: not enough information"])
    assert other["acc"] == 1.0
