"""Tests that the callables of a task are described by the same text in every process."""

from __future__ import annotations

import functools
import inspect
from pathlib import Path
from typing import Any

import pytest

from lm_eval.config.callables import describe_callable, name_of
from lm_eval.runs.hashes import config_hash
from lm_eval.tasks import TaskManager
from tests.conftest import Folder


def between(doc: dict[str, Any], first: str = "", last: str = "") -> str:
    return f"{first}{doc['thing']}{last}"


class Wrapped:
    """A callable object whose `repr` contains its address."""

    def __init__(self, word: str) -> None:
        self.word, self.me = word, self

    def __call__(self, doc: dict[str, Any]) -> str:
        return self.word

    def method(self, doc: dict[str, Any]) -> str:
        return self.word


def without_source(text: str) -> Any:
    """Returns a function that was defined in no file; a new object each time."""
    names: dict[str, Any] = {"__name__": "elsewhere"}
    exec(f"def made(doc):\n    return {text}\n", names)
    return names["made"]


SOME = [
    lambda: functools.partial(between, first="a"),
    lambda: functools.partial(between, first="b"),
    lambda: functools.partial(between, last="a"),
    lambda: functools.partial(functools.partial(between, first="a"), last={"z", "y", "x"}),
    lambda: functools.partial(between, first=Wrapped("a")),
    lambda: functools.partial(between, first=Wrapped("b")),
    lambda: functools.partial(between, first=without_source("1")),
    lambda: Wrapped("a"),
    lambda: Wrapped("b"),
    lambda: without_source("doc in {'a', 'b'}"),
    lambda: without_source("doc in {'a', 'c'}"),
    lambda: without_source("[x for x in doc]"),
    lambda: without_source("[x for x in doc if x]"),
    lambda: "a".join,
    lambda: "b".join,
]


def test_a_description_has_no_addresses_and_tells_callables_apart() -> None:
    first = [describe_callable(make()) for make in SOME]
    kept = [make() for make in SOME]  # so that no address is used twice
    assert [describe_callable(one) for one in kept] == first
    assert not [text for text in first if " at 0x" in text]
    assert len(set(first)) == len(SOME)


def test_functions_and_classes_are_described_as_before_by_their_source() -> None:
    for one in (between, Wrapped, Wrapped("a").method):
        assert describe_callable(one) == inspect.getsource(one)
    for builtin in (len, str.lower, int):
        assert describe_callable(builtin) == str(builtin)


def test_a_partial_describes_the_source_of_its_function() -> None:
    text = describe_callable(functools.partial(between, first="a"))
    assert text.startswith(f"functools.partial({__name__}.between, first='a')\n")
    assert inspect.getsource(between) in text
    assert name_of(functools.partial(between)) == f"{__name__}.between"
    assert name_of(Wrapped("a")) == f"{__name__}.Wrapped"


@pytest.mark.parametrize("key", ["doc_to_text", "process_results"])
def test_the_hash_of_a_task_depends_on_bound_arguments_only(colours: Folder, key: str) -> None:
    def hash_with(word: str) -> str:
        changed = {"task": "colours", key: functools.partial(between, first=word)}
        manager = TaskManager(include_path=Path(colours.path), include_defaults=False)
        (task,) = manager.load([changed])["tasks"].values()
        return config_hash(task)

    assert hash_with("a") == hash_with("a")
    assert hash_with("a") != hash_with("b")
