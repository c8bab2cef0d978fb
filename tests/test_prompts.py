"""Tests that documents become the exact prompts."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from lm_eval.api.registry import get_sampler
from lm_eval.errors import ConfigError, DataError, UnknownNameError
from lm_eval.prompts import fields
from lm_eval.prompts.fewshot import ContextSampler, FirstNSampler, replace_eval_doc
from lm_eval.prompts.messages import Message, join, question_and_answer, render, single_turn
from lm_eval.prompts.template import apply_template
from lm_eval.prompts.text import general_detokenize

DOC: dict[str, Any] = {"q": "Why?", "n": "2", "options": ["a", "b"], "label": 1}


def text(spec: Any, has_choices: bool = False) -> Any:
    return fields.text_of(DOC, spec, list(DOC), has_choices)


def target(spec: Any, has_choices: bool = False) -> Any:
    return fields.target_of(DOC, spec, list(DOC), has_choices)


def test_a_template_is_filled_in_and_keeps_its_last_line_end() -> None:
    assert apply_template("{{q}}\n", DOC) == "Why?\n"


def test_templates_can_replace_by_pattern() -> None:
    assert apply_template("{{q | regex_replace('[?]', '!')}}", DOC) == "Why!"


def test_an_undefined_name_is_an_error_that_lists_the_columns() -> None:
    with pytest.raises(
        DataError, match=r"'nope' is undefined.* The columns of the document are: q, n, options"
    ):
        apply_template("{{nope}}", DOC)


@pytest.mark.parametrize(
    "template",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ q.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id') }}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(template: str) -> None:
    with pytest.raises((ConfigError, DataError)):
        apply_template(template, DOC)


def test_a_field_may_be_a_column_a_template_a_function_or_a_number() -> None:
    assert text("q") == "Why?"
    assert text("{{q}} {{n}}") == "Why? 2"
    assert text(lambda doc: doc["label"]) == 1
    assert text(0) == 0


def test_digits_are_an_index_only_where_there_are_choices() -> None:
    assert text("{{n}}") == "2"
    assert text("{{n}}", has_choices=True) == 2
    assert target("{{label}}", has_choices=True) == 1
    assert target("{{label}}") == "1"


def test_a_target_that_spells_a_list_is_one() -> None:
    assert target("{{options}}") == ["a", "b"]
    assert target("[not a list]") == "[not a list]"
    assert target(["x", "y"]) == ["x", "y"]


def test_choices_come_as_column_template_list_or_table() -> None:
    for spec in ("options", "{{options}}", ["a", "b"], {"x": "a", "y": "b"}, lambda _: ["a", "b"]):
        assert fields.choices_of(DOC, spec, list(DOC)) == ["a", "b"]


def test_a_delimiter_stands_only_where_texts_would_run_together() -> None:
    assert join("a", "b") == "a b"
    assert join("a ", "b") == "a b"
    assert join("a", "\nb") == "a\nb"
    assert join(None, "b") == "b"
    assert join("a", "") == "a"


def plain(messages: list[Message]) -> str:
    return render(messages, None, False)


def test_an_example_shows_its_answer_and_a_question_does_not() -> None:
    assert plain(question_and_answer("Q", answer="A")) == "Q A\n\n"
    assert plain(question_and_answer("Q", answer=1, choices=["x", "y"])) == "Q y\n\n"
    assert plain(question_and_answer("Q", answer=["first", "second"])) == "Q first\n\n"
    assert plain(question_and_answer("Q")) == "Q"


def test_a_prefix_opens_the_answer() -> None:
    assert plain(question_and_answer("Q", prefix="So:")) == "Q So:"
    assert plain(question_and_answer("Q\n", prefix="So:")) == "Q\nSo:"
    assert plain(question_and_answer("Q", prefix="So:", answer="A")) == "Q So: A\n\n"


def test_an_answer_that_is_no_choice_is_refused() -> None:
    with pytest.raises(DataError, match="the index 5, but the document has only 2 choices"):
        question_and_answer("Q", answer=5, choices=["x", "y"])


CHAT = [
    Message("system", "S"),
    *question_and_answer("Q1", answer="A1"),
    *question_and_answer("Q2", prefix="P"),
]


def test_a_chat_has_a_turn_a_message_or_one_user_turn() -> None:
    said: list[Any] = []
    render(CHAT, lambda history: said.append(history) or "", True)
    render(CHAT, lambda history: said.append(history) or "", False)
    turns, single = said
    assert [turn["role"] for turn in turns] == ["system", "user", "assistant", "user", "assistant"]
    assert single == single_turn(CHAT)
    assert single == [
        {"role": "system", "content": "S"},
        {"role": "user", "content": "Q1 A1\n\nQ2"},
        {"role": "assistant", "content": "P"},
    ]


POOL = [{"id": i} for i in range(20)]


def test_draws_are_those_of_the_seed() -> None:
    sampler = ContextSampler(POOL, rnd=7)
    random = Random(7)
    assert sampler.sample(3) == random.sample(POOL, 3)
    assert sampler.sample(3) == random.sample(POOL, 3)
    assert sampler.set_rnd(7).sample(3) == Random(7).sample(POOL, 3)


@pytest.mark.parametrize("make", [ContextSampler, FirstNSampler])
def test_the_question_is_never_among_its_examples(make: type[ContextSampler]) -> None:
    sampler = make(POOL, rnd=0)
    for doc in POOL:
        assert doc not in sampler.sample(10, eval_doc=doc)
        shown = replace_eval_doc(sampler, doc, sampler.sample(19), Random(0))
        assert doc not in shown
        assert len(shown) == 19


def test_taking_the_question_out_leaves_other_draws_alone() -> None:
    plain_draws, careful = ContextSampler(POOL, rnd=3), ContextSampler(POOL, rnd=3)
    for doc in POOL:
        drawn = plain_draws.sample(5)
        exchanged = replace_eval_doc(careful, doc, careful.sample(5), Random(3))
        assert [d for d in drawn if d != doc] == exchanged[: 5 - (doc in drawn)]


def test_first_n_are_the_first() -> None:
    assert FirstNSampler(POOL).sample(3) == POOL[:3]


@pytest.mark.parametrize("make", [ContextSampler, FirstNSampler])
def test_too_few_documents_are_an_error(make: type[ContextSampler]) -> None:
    with pytest.raises(ConfigError, match="21 few-shot examples are needed, but there are only 20"):
        make(POOL).sample(21)


def test_an_unknown_sampler_is_named() -> None:
    known = r"unknown few-shot sampler 'frist_n'\. Did you mean 'first_n'\? .*: default, first_n"
    with pytest.raises(UnknownNameError, match=known):
        get_sampler("frist_n")


def test_detokenising() -> None:
    assert general_detokenize('do n\'t ( say ) " no " , please .') == 'don\'t (say)"no", please.'
