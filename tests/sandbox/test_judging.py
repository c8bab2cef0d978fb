"""Tests that honest programs get the verdict that running them together with their tests gives."""

from __future__ import annotations

import threading
import time

import pytest

from lm_eval.sandbox import Limits, Verdict, calibrate, run

NODE = """
class Node:
    def __init__(self, data):
        self.data, self.left, self.right = data, None, None
def height(node):
    return 0 if node is None else 1 + max(height(node.left), height(node.right))
"""

#: Program, tests, and whether it passes.
CASES: dict[str, tuple[str, str, bool]] = {
    "a right answer": ("def f(x): return x + 1", "assert f(1) == 2", True),
    "a wrong answer": ("def f(x): return x", "assert f(1) == 2", False),
    "a wrong answer to the last test": (
        "def f(x): return 2",
        "assert f(1) == 2\nassert f(2) == 3",
        False,
    ),
    "keyword arguments": (
        "def f(a, *, b=1, **more): return a + b + sum(more.values())",
        "assert f(1, b=2, c=3) == 6\nassert f(a=1) == 2",
        True,
    ),
    "every plain type": (
        "def f(x): return x",
        "from collections import deque\n"
        "from datetime import date, datetime, timedelta\n"
        "from decimal import Decimal\nfrom fractions import Fraction\n"
        "for x in [None, True, 0, -1, 255, -256, 2**200, -2**63, 1.5, -0.0, float('inf'), 1j,\n"
        "          '', 'é\\ud800\\0', b'\\xff', bytearray(b'x'), [1, [2]], (1, (2,)), {1, 2},\n"
        "          frozenset({1}), {'a': {1: None}}, deque([1]), range(1, 9, 2), Decimal('1.10'),\n"
        "          Fraction(1, 3), date(2020, 1, 2), datetime(2020, 1, 2, 3), timedelta(1), int]:\n"
        "    y = f(x)\n"
        "    assert y == x and type(y) is type(x) and repr(y) == repr(x), x\n",
        True,
    ),
    "None and truth values are the same objects": (
        "def f(x): return x",
        "assert f(None) is None and f(True) is True and f(False) is False",
        True,
    ),
    "a tuple is no list": ("def f(): return (1, 2)", "assert f() == [1, 2]", False),
    "a map is no list": ("def f(): return map(abs, [1, 2])", "assert f() == [1, 2]", False),
    "a map can be listed once": (
        "def f(): return map(abs, [1, -2])",
        "m = f()\nassert list(m) == [1, 2]\nassert list(m) == []",
        True,
    ),
    "an endless generator": (
        "def f():\n    n = 0\n    while True:\n        yield n\n        n += 1",
        "g = f()\nassert [next(g), next(g)] == [0, 1]\nassert 5 in g",
        True,
    ),
    "the end of a generator": (
        "def f(): yield 1",
        "g = f()\nnext(g)\ntry:\n    next(g)\nexcept StopIteration:\n    pass\nelse:\n    assert 0",
        True,
    ),
    "a counter equals a dictionary": (
        "from collections import Counter\ndef f(s): return Counter(s)",
        "from collections import Counter\nassert f('aab') == {'a': 2, 'b': 1} == Counter('aab')",
        True,
    ),
    "a default dictionary, an ordered one, a named tuple, an enumeration": (
        "import collections, enum\n"
        "class E(enum.IntEnum):\n    ONE = 1\n"
        "def f():\n"
        "    d = collections.defaultdict(list)\n    d[1].append(2)\n"
        "    point = collections.namedtuple('P', 'x y')(1, 2)\n"
        "    return d, collections.OrderedDict(a=1), point, E.ONE",
        "assert f() == ({1: [2]}, {'a': 1}, (1, 2), 1)",
        True,
    ),
    "a list sorted in place": (
        "def f(x): x.sort()",
        "x = [3, 1, 2]\ny = x\nassert f(x) is None\nassert x == [1, 2, 3] and y is x",
        True,
    ),
    "a dictionary and a matrix changed in place": (
        "def f(d, m):\n    d['a'].append(1)\n    m[0][0] = 9",
        "d, m = {'a': []}, [[1, 2], [3]]\nrow = m[0]\nf(d, m)\n"
        "assert d == {'a': [1]} and m == [[9, 2], [3]] and row == [9, 2]",
        True,
    ),
    "an argument changed by a function with a result stays as it was": (
        "def f(x):\n    x.sort()\n    return x",
        "x = [3, 1, 2]\nassert f(x) == [1, 2, 3]\nassert x == [3, 1, 2]",
        True,
    ),
    "objects of a class of the program": (
        NODE,
        "root = Node(1)\nroot.left = Node(2)\nroot.left.right = Node(3)\n"
        "assert height(root) == 3\nassert root.left.data == 2 and root.right is None\n"
        "assert root.left is root.left",
        True,
    ),
    "a list of objects of the program": (
        "class Pair:\n    def __init__(self, a, b): self.a, self.b = a, b\n"
        "def f(pairs): return max(p.b - p.a for p in pairs)",
        "assert f([Pair(1, 4), Pair(2, 9)]) == 7",
        True,
    ),
    "two objects of the program are not equal": (
        "class P:\n    def __eq__(self, other): return True\n    __hash__ = None\n"
        "def f(): return P()",
        "assert f() == f()",
        False,
    ),
    "methods, items, length, truth and text of an object": (
        "class Stack:\n    def __init__(self): self.x = []\n"
        "    def push(self, v): self.x.append(v)\n"
        "    def __len__(self): return len(self.x)\n"
        "    def __getitem__(self, i): return self.x[i]\n"
        "    def __str__(self): return 'stack'\n",
        "s = Stack()\nassert not s\ns.push(4)\ns.push(5)\n"
        "assert s and len(s) == 2 and s[0] == 4 and list(s) == [4, 5] and str(s) == 'stack'",
        True,
    ),
    "an exception that is expected": (
        "def f(x): raise ValueError('no')",
        "try:\n    f(1)\n    assert False, 'no exception'\n"
        "except ValueError as error:\n    assert str(error) == 'no'",
        True,
    ),
    "an exception of another type": (
        "def f(x): raise KeyError('no')",
        "try:\n    f(1)\nexcept ValueError:\n    pass",
        False,
    ),
    "an exception class of the program": (
        "class Bad(ValueError): pass\nclass Worse(Bad): pass\ndef f(x): raise Worse('no', 1)",
        "for kind in (Bad, ValueError):\n"
        "    try:\n        f(1)\n        assert False\n"
        "    except kind as error:\n        assert error.args == ('no', 1)",
        True,
    ),
    "an exception with arguments of its own kind": (
        "def f(): return b'\\xff'.decode('utf-8')",
        "try:\n    f()\nexcept UnicodeDecodeError:\n    pass\nelse:\n    assert False",
        True,
    ),
    "a function of the tests as an argument": (
        "def f(g, xs): return [g(x) for x in xs]",
        "seen = []\ndef g(x):\n    seen.append(x)\n    return x * x\n"
        "assert f(g, [1, 2]) == [1, 4] and seen == [1, 2]\n"
        "assert f(lambda x: -x, [1]) == [-1]\nassert f(str, [1]) == ['1']",
        True,
    ),
    "an iterator of the tests as an argument": (
        "def f(xs): return [x + 1 for x in xs]",
        "assert f(iter([1, 2])) == [2, 3] == f(map(int, '12'))",
        True,
    ),
    "an exception in a function of the tests": (
        "def f(g):\n    try: g()\n    except ZeroDivisionError: return 'caught'",
        "assert f(lambda: 1 / 0) == 'caught'",
        True,
    ),
    "a function of the program that calls back into itself": (
        "def f(g, n): return n if n == 0 else g(n - 1)",
        "def g(n): return f(g, n)\nassert f(g, 20) == 0",
        True,
    ),
    "a function as a result": ("def f(n): return lambda x: x + n", "assert f(2)(3) == 5", True),
    "a constant": ("LIMITS = {'a': [1]}", "assert LIMITS == {'a': [1]}", True),
    "the name of a built-in function": (
        "def sum(a, b): return a * b",
        "assert sum(3, 4) == 12\nassert sum(5, 5) == 25",
        True,
    ),
    "a module that only the program imports": (
        "import sys\ndef f(x): return sys.getsizeof(x)",
        "assert f('a') == sys.getsizeof('a')",
        True,
    ),
    "a module that only the tests import": (
        "def f(x): return math.sqrt(x)",
        "import math\nassert f(4) == 2",
        True,
    ),
    "a module that nobody imports": ("def f(x): return x", "assert math.isclose(f(1), 1)", False),
    "a function named like a module": ("def copy(x): return x", "assert copy(1) == 1", True),
    "tests that use the program for what they expect": (
        "def encode(s): return s[::-1]\ndef decode(s): return encode(s)",
        "def check(candidate):\n    from random import choice\n"
        "    for s in ['abc', 'xy']:\n        assert candidate(encode(s)) == s\ncheck(decode)",
        True,
    ),
    "a main block": (
        "def f(): return 1\nif __name__ == '__main__':\n    raise SystemExit",
        "assert f() == 1",
        True,
    ),
    "output": (
        "print('hello')\ndef f():\n    print('x' * 10**6)\n    return 1",
        "assert f() == 1",
        True,
    ),
    "a file": (
        "def f():\n    with open('x.txt', 'w') as file: file.write('text')\n"
        "    return open('x.txt').read()",
        "assert f() == 'text'",
        True,
    ),
    "threads": (
        "from concurrent.futures import ThreadPoolExecutor\n"
        "def f():\n    with ThreadPoolExecutor(4) as pool: return list(pool.map(abs, [-1, -2]))",
        "assert f() == [1, 2]",
        True,
    ),
    "asyncio": (
        "import asyncio\nasync def g():\n    await asyncio.sleep(0.01)\n    return 1\n"
        "def f(): return asyncio.run(g())",
        "assert f() == 1",
        True,
    ),
    "recursion within the usual limit": (
        "def f(n): return 0 if n == 0 else 1 + f(n - 1)",
        "assert f(900) == 900",
        True,
    ),
    "a class with type hints and data": (
        "from dataclasses import dataclass\nfrom typing import List\n"
        "@dataclass\nclass P:\n    x: int\n    tags: List[str]\ndef f(p: P) -> int: return p.x",
        "p = P(3, ['a'])\nassert f(p) == 3 and p.tags == ['a']",
        True,
    ),
    "an error when the program is loaded": ("1 / 0\ndef f(): return 1", "assert f() == 1", False),
    "tests with a syntax error": ("def f(): return 1", "assert f( == 1", False),
    "empty tests": ("def f(): return 1", "", True),
}


def test_a_program_is_judged_as_together_with_its_tests() -> None:
    programs, tests, expected = zip(*CASES.values(), strict=True)
    verdicts = run(programs, tests, Limits().with_wall_seconds(20))
    judged = zip(CASES, verdicts, expected, strict=True)
    assert {name: verdict for name, verdict, passes in judged if verdict.passed is not passes} == {}


@pytest.mark.parametrize("name", CASES)
def test_the_cases_are_what_plain_execution_gives(name: str) -> None:
    program, tests, passes = CASES[name]
    if name in DIFFERENT:
        pytest.skip(DIFFERENT[name])
    namespace: dict[str, object] = {}
    try:
        exec(compile(f"{program}\n{tests}", "<both>", "exec", dont_inherit=True), namespace)
        passed = True
    except BaseException:
        passed = False
    assert passed is passes


#: Where the verdict is not that of plain execution, on purpose.
DIFFERENT = {
    "an argument changed by a function with a result stays as it was": "inputs cannot be edited",
    "two objects of the program are not equal": "the program takes no part in comparisons",
    "a file": "writes to the working folder",
    "output": "writes to the terminal",
}


def test_details_are_one_line_with_the_test_that_failed() -> None:
    (verdict,) = run(["def f(x): raise ValueError('a\\nb')"], ["y = 1\nassert f(y) == 2"])
    assert verdict.outcome == "failed"
    assert verdict.detail == "ValueError: a b in: assert f(y) == 2"


def test_verdicts_are_reported_as_they_come_from_the_calling_thread() -> None:
    seen: list[tuple[int, bool, int]] = []

    def report(index: int, verdict: Verdict) -> None:
        seen.append((index, verdict.passed, threading.get_ident()))

    programs = [f"def f(): return {n}" for n in range(6)]
    run(programs, ["assert f() % 2 == 0"] * 6, workers=3, report=report)
    assert sorted(seen) == [(n, n % 2 == 0, threading.get_ident()) for n in range(6)]


def test_an_error_in_the_report_ends_the_run_and_all_its_processes() -> None:
    def report(index: int, verdict: Verdict) -> None:
        raise KeyboardInterrupt

    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(["import time\ntime.sleep(0.01)"] * 500, [""] * 500, report=report)
    assert time.monotonic() - begin < 20


def test_programs_and_tests_must_be_as_many() -> None:
    with pytest.raises(ValueError, match="2 programs, but tests for 1"):
        run(["", ""], [""])


def test_no_programs_need_no_processes() -> None:
    assert run([], []) == []


def test_a_slow_machine_raises_the_wall_limit_and_a_fast_one_does_not_lower_it() -> None:
    slow = "import time\ntime.sleep(0.3)\ndef f(): return 1"
    limits = Limits(wall_seconds=0.2)
    raised = calibrate([slow], ["assert f() == 1"], limits, margin=2.0)
    assert raised.wall_seconds >= 0.6
    assert raised.cpu_seconds > raised.wall_seconds
    assert run([slow], ["assert f() == 1"], raised)[0].passed
    assert calibrate(["x = 1"], ["assert x"], Limits(wall_seconds=60.0)).wall_seconds == 60.0


def test_numbers_of_numpy_are_plain_numbers() -> None:
    pytest.importorskip("numpy")
    program = (
        "import numpy as np\n"
        "def f(x): return np.sum(x)\ndef g(): return np.float32(0.5), np.bool_(True)\n"
        "def h(): return np.array([1, 2])"
    )
    tests = (
        "assert f([1, 2]) == 3 and type(f([1, 2])) is int\nassert g() == (0.5, True)\n"
        "assert h().tolist() == [1, 2]"
    )
    (verdict,) = run([program], [tests], Limits().with_wall_seconds(30))
    assert verdict.passed, verdict
