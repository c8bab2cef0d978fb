"""`Instance` stores its fields compactly, but behaves as a plain dataclass."""

from __future__ import annotations

import copy
import dataclasses
import pickle

import pytest

from lm_eval.api.instance import Failure, Instance


def request(**fields: object) -> Instance:
    return Instance("loglikelihood", {"q": 1}, ("a", " b"), 2, ("task", 3, 1), **fields)  # type: ignore[arg-type]


def test_the_containers_are_a_list_and_a_dictionary_that_can_be_changed() -> None:
    one = request()
    assert one.resps == []
    assert one.filtered_resps == {}
    one.resps.append(1)
    one.filtered_resps["none"] = 2
    assert one.resps == [1]
    assert one.filtered_resps == {"none": 2}
    assert list(one.answers) == [1]
    assert one.filtered("none") == 2


def test_compact_answers_are_the_same_as_those_in_containers() -> None:
    one = request()
    assert list(one.answers) == []
    one.add_answer((-1.0, True))
    assert list(one.answers) == [(-1.0, True)]
    one.set_filtered("none", "x")
    assert one.filtered("none") == "x"
    with pytest.raises(KeyError):
        one.filtered("other")
    assert one.resps == [(-1.0, True)]
    assert one.filtered_resps == {"none": "x"}
    one.add_answer("second")
    one.set_filtered("other", "y")
    assert one.resps == [(-1.0, True), "second"]
    assert one.filtered_resps == {"none": "x", "other": "y"}
    one.set_answers([7])
    assert one.resps == [7]
    one.set_answers([None])  # None is an answer, too
    assert list(one.answers) == [None]
    one.set_filtered("none", None)
    assert one.filtered_resps == {"none": None, "other": "y"}
    one.forget_answers()
    assert (one.resps, one.filtered_resps, one.failed) == ([], {}, False)


def test_a_result_of_none_is_kept_when_a_second_pipeline_follows() -> None:
    one = request()
    one.set_filtered("first", None)
    one.set_filtered("second", 1)
    assert one.filtered_resps == {"first": None, "second": 1}


def test_a_pipeline_may_have_any_name() -> None:
    one = request()
    one.set_filtered(None, "text")  # type: ignore[arg-type]  # `name: null` in a task file
    assert one.filtered(None) == "text"  # type: ignore[arg-type]
    assert one.filtered_resps == {None: "text"}


def test_copies_replacements_and_pickles_are_equal() -> None:
    one = request(tokens=4, extraction_failed=("none",), digest=b"d")
    one.add_answer(Failure("overloaded"))
    assert one.failed
    for other in (copy.copy(one), dataclasses.replace(one), pickle.loads(pickle.dumps(one))):
        assert other == one
        assert (other.tokens, other.extraction_failed, other.digest) == (4, ("none",), b"d")
    unanswered = pickle.loads(pickle.dumps(request()))
    assert list(unanswered.answers) == []  # the marker is the same object in another process
    replaced = dataclasses.replace(one, resps=["x"], filtered_resps={})
    assert (replaced.resps, one.resps) == (["x"], [Failure("overloaded")])


def test_fields_have_the_names_order_and_defaults_of_the_constructor() -> None:
    names = [field.name for field in dataclasses.fields(Instance)]
    code = Instance.__init__.__code__
    assert names == list(code.co_varnames[1 : code.co_argcount])
    plain = Instance("generate_until", None, (), 0)
    assert plain.metadata == (None, None, None)
    assert (plain.task_name, plain.doc_id, plain.repeats, plain.doc_number) == (None,) * 4
    assert dataclasses.asdict(plain)["extraction_failed"] == ()


def test_other_code_may_add_attributes() -> None:
    one = request()
    one.note = "mine"  # type: ignore[attr-defined]
    assert copy.copy(one).note == "mine"  # type: ignore[attr-defined]
