"""Tests that functions of a prompt stay those of the prompt, whatever a program makes of them."""

from __future__ import annotations

import pytest

from lm_eval.sandbox import run
from lm_eval.sandbox.given_functions import given_functions

#: As in HumanEval: a helper, and the function to be completed, which the tests check by the helper.
PROMPT = '''from typing import List
import math


def _turn(text: str) -> str:
    return text[1:] + text[:1]


def encode(parts: List[str]) -> str:
    """Encodes."""
    assert math.pi > 3
    return "".join(map(_turn, parts))


def decode(text: str) -> List[str]:
    """Inverse of encode, for parts of three letters."""
'''
TESTS = """
def check(candidate):
    for parts in (["abc"], ["abc", "xyz"]):
        assert candidate(encode(list(parts))) == parts
check(decode)
"""
RIGHT = "    return [text[i + 2] + text[i : i + 2] for i in range(0, len(text), 3)]\n"
FORGED = "    return text\n\ndef encode(parts):\n    return parts\n"


def passed(completion: str, given: str | None = PROMPT, tests: str = TESTS) -> bool:
    program = PROMPT + completion
    (verdict,) = run([program], [tests], given=None if given is None else [given])
    return verdict.passed


def test_a_redefined_helper_does_not_make_a_wrong_program_right() -> None:
    assert passed(RIGHT)
    assert not passed(FORGED)
    assert passed(FORGED, given=None)  # as in the published method: there it is a forgery
    assert not passed("    return text\n\nimport sys\nglobals()['encode'] = lambda x: x\n")


def test_a_right_program_may_redefine_what_it_likes() -> None:
    assert passed(RIGHT + "\ndef encode(parts):\n    return ''.join(p[1:] + p[0] for p in parts)\n")
    assert passed(RIGHT + "\ndef _turn(text):\n    return text\n")


def test_a_name_that_the_program_deletes_is_not_defined() -> None:
    assert not passed(RIGHT + "\ndel encode\n")


def test_the_tests_own_definitions_come_first() -> None:
    own = "def encode(parts):\n    return ''.join(p[1:] + p[0] for p in parts)\n"
    assert passed(RIGHT, tests=own + TESTS)


CASES = {
    "a helper and what it calls": (PROMPT, {"_turn", "encode"}),
    "only the function to complete": ("def f(x):\n    return 1\n", set()),
    "not Python": ("Write a function.\ndef g", set()),
    "prose": ("Write a function that adds.", set()),
    "an unfinished last function": ("def h(x):\n    return x\n\ndef f(x):\n    if", {"h"}),
    "an unfinished first function": ("def h(x):\n    \ndef f(x):\n    return 1", set()),
    "functions without a body": (
        'def a():\n    """To do."""\n\ndef b():\n    pass\n\ndef c():\n    ...\n\n'
        "def d():\n    raise NotImplementedError\n\ndef f():\n",
        set(),
    ),
    "a helper that calls the function to complete": (
        "def h(x):\n    return f(x)\n\ndef f(x):\n",
        set(),
    ),
    "a helper that reads a variable": ("K = []\n\ndef h():\n    return K\n\ndef f():\n", set()),
    "a helper that sets a variable": (
        "def h():\n    global k\n    k = 1\n    return k\n\ndef f():\n",
        set(),
    ),
    "a helper that builds an object": (
        "class P:\n    pass\n\ndef h():\n    return P()\n\ndef f():\n",
        set(),
    ),
    "a helper that is bound twice": (
        "def h():\n    return 1\n\nh = print\n\ndef f():\n",
        set(),
    ),
    "a helper that uses an unusual module": (
        "import requests\n\ndef h():\n    return requests.get\n\ndef f():\n",
        set(),
    ),
    "a decorated function to complete": (
        "import functools\n\ndef h(x):\n    return x\n\n@functools.cache\ndef f(x):\n",
        {"h"},
    ),
    "a recursive helper with local names": (
        "def h(n):\n    k = n\n    return h(k - 1) if k else [i for i in range(k)]\n\ndef f():\n",
        {"h"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_only_complete_functions_that_depend_on_nothing_else_are_given(name: str) -> None:
    text, expected = CASES[name]
    assert set(given_functions(text)) == expected


def test_as_many_given_texts_as_programs_are_needed() -> None:
    with pytest.raises(ValueError, match="given texts for 1"):
        run(["def f(): pass"] * 2, ["f()"] * 2, given=[""])
